#include "comm/tcp/poller.hpp"

#include <sys/eventfd.h>

#include "comm/tcp/socket.hpp"

namespace tulle {

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!epoll_) throw_errno("epoll_create1");
  if (!event_) throw_errno("eventfd");
  add(event_.get(), kWakeKey, EPOLLIN);
}

void Poller::add(int fd, Key key, std::uint32_t events) {
  epoll_event event{events, {.u64 = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("epoll_ctl");
}

void Poller::change(int fd, Key key, std::uint32_t events) {
  epoll_event event{events, {.u64 = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) throw_errno("epoll_ctl");
}

void Poller::remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const epoll_event> Poller::look(std::span<epoll_event> events, int milliseconds) const {
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  return events.first(static_cast<std::size_t>(count > 0 ? count : 0));
}

// A waker first notes that it was there and then looks for sleepers; a sleeper first says that it sleeps and then looks
// for the note. So one of them sees the other, whichever comes first.
void Poller::sleep(int milliseconds) {
  sleeps_.store(true);
  if (!woken_.exchange(false)) {
    epoll_event event;
    epoll_wait(epoll_.get(), &event, 1, milliseconds);
    woken_.store(false);
  }
  sleeps_.store(false);
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
}

void Poller::wake() {
  if (woken_.exchange(true) || !sleeps_.load()) return;
  eventfd_write(event_.get(), 1);
}

void Poller::forget() noexcept {
  epoll_.close();
  event_.close();
}

}  // namespace tulle
