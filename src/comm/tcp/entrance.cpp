#include "comm/tcp/entrance.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/tcp/socket.hpp"

namespace tulle {
namespace {

// Looks at other sockets come in between.
constexpr int kMostAtOnce = 64;
// Long enough that a core does not spin, short enough that a rank that waits for its turn does not notice.
constexpr double kSecondsOfRest = 0.1;

std::size_t most_descriptors() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::size_t{1} << 20;
  return static_cast<std::size_t>(limit.rlim_cur);
}

bool is_for_want_of_descriptors(int code) {
  return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

// Asked before each accept(): where no descriptor is left that fails also when nobody has connected.
bool has_caller(int listener) {
  pollfd entry{listener, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

std::size_t most_strangers() { return std::clamp<std::size_t>(most_descriptors() / 8, 4, 256); }

Entrance::Entrance(std::vector<Fd> listeners, Judge judge, OnRefusal on_refusal, double seconds_per_stranger)
    : judge_(std::move(judge)),
      on_refusal_(std::move(on_refusal)),
      seconds_per_stranger_(seconds_per_stranger),
      most_strangers_(most_strangers()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      listeners_(std::move(listeners)),
      next_number_(listeners_.size()) {
  if (!epoll_) throw_errno("epoll_create1");
  for (Number i = 0; i < listeners_.size(); ++i) {
    epoll_event event{EPOLLIN, {.u64 = i}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listeners_[i].get(), &event) != 0) throw_errno("epoll_ctl");
  }
}

std::uint16_t Entrance::port() const { return address_of_this_end(listeners_.front().get()).port(); }

void Entrance::forget() noexcept {
  epoll_.close();
  for (Fd& listener : listeners_) listener.close();
  for (auto& [number, stranger] : strangers_) stranger.fd.close();
}

std::vector<Entrance::Arrival> Entrance::look() {
  std::vector<Arrival> arrivals;
  end_rest();
  epoll_event events[kMostAtOnce];
  const int count = epoll_wait(epoll_.get(), events, kMostAtOnce, 0);
  // Those who are here first: letting in may send them away.
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 >= listeners_.size()) hear(events[i].data.u64, arrivals);
  }
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 < listeners_.size()) let_in(listeners_[events[i].data.u64].get(), arrivals);
  }
  drop_late();
  return arrivals;
}

void Entrance::drop_late() {
  while (!strangers_.empty() && strangers_.begin()->second.deadline.has_passed()) {
    const bool is_silent = strangers_.begin()->second.said.empty();
    refuse(strangers_.begin()->first, is_silent ? "it says nothing" : "it takes too long to say who it is");
  }
}

void Entrance::hear(Number number, std::vector<Arrival>& arrivals) {
  const auto place = strangers_.find(number);
  if (place == strangers_.end()) return;
  Stranger& stranger = place->second;
  for (;;) {
    char chunk[4096];
    const ssize_t got = ::recv(stranger.fd.get(), chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      if (!stranger.said.empty()) return refuse(number, "it hung up before it said who it is");
      drop(number);  // a rank that is called by the one that it calls does that
      return;
    }
    stranger.said.append(chunk, static_cast<std::size_t>(got));
    const Verdict verdict = judge_(stranger.said);
    if (verdict.kind == Verdict::Kind::wrong) return refuse(number, verdict.reason);
    if (verdict.kind == Verdict::Kind::part) continue;
    Stranger known = drop(number);
    arrivals.push_back({std::move(known.fd), std::move(known.address), std::move(known.said)});
    return;
  }
}

void Entrance::let_in(int listener, std::vector<Arrival>& arrivals) {
  for (int i = 0; i < kMostAtOnce && has_caller(listener); ++i) {
    Fd fd = accept_from(listener);
    if (!fd && is_for_want_of_descriptors(errno)) {
      lacked_descriptors_ = true;
      if (!make_room(arrivals, "no file descriptor is left")) return rest();
      continue;
    }
    if (!fd) continue;  // that one is gone
    if (strangers_.size() >= most_strangers_) make_room(arrivals, "too many connect at once");
    const Number number = next_number_++;
    epoll_event event{EPOLLIN, {.u64 = number}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) continue;
    std::string address = address_of_other_end(fd.get()).text();
    strangers_.emplace(number, Stranger{std::move(fd), Deadline(seconds_per_stranger_), std::move(address)});
    hear(number, arrivals);  // who belongs here says its words at once
  }
}

// The oldest goes, unless what it has to say came meanwhile.
bool Entrance::make_room(std::vector<Arrival>& arrivals, const std::string& reason) {
  if (strangers_.empty()) return false;
  const Number oldest = strangers_.begin()->first;
  hear(oldest, arrivals);
  if (strangers_.contains(oldest)) refuse(oldest, reason);
  return true;
}

Entrance::Stranger Entrance::drop(Number number) {
  Stranger stranger = std::move(strangers_.extract(number).mapped());
  // A forked child may still have the socket, and closing this end would not take it out of the set.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.fd.get(), nullptr);
  return stranger;
}

void Entrance::refuse(Number number, const std::string& reason) { count_refusal(drop(number).address, reason); }

void Entrance::count_refusal(const std::string& address, const std::string& reason) {
  refused_ += 1;
  last_refusal_ = fmt::format("{} because {}", address, reason);
  if (on_refusal_) on_refusal_(address, reason);
}

std::string Entrance::refusals() const {
  std::string text;
  if (refused_ == 1) text = fmt::format("; a connection was refused, of {}", last_refusal_);
  if (refused_ > 1) text = fmt::format("; {} connections were refused, the last one of {}", refused_, last_refusal_);
  if (lacked_descriptors_) {
    text += fmt::format("; this process had no file descriptor left, of {} (ulimit -n)", most_descriptors());
  }
  return text;
}

// ---------------------------------------------------------------- rest

void Entrance::rest() {
  rests_until_ = Deadline(kSecondsOfRest);
  watch_listeners(0);
}

void Entrance::end_rest() {
  if (!rests_until_ || !rests_until_->has_passed()) return;
  rests_until_.reset();
  watch_listeners(EPOLLIN);
}

void Entrance::watch_listeners(std::uint32_t events) {
  for (Number i = 0; i < listeners_.size(); ++i) {
    epoll_event event{events, {.u64 = i}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].get(), &event);
  }
}

}  // namespace tulle
