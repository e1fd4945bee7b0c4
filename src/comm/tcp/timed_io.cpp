#include "comm/tcp/timed_io.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace tulle {
namespace {

bool is_worth_another_try(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

}  // namespace

bool wait_for(int fd, short events, const Deadline& deadline) {
  while (!deadline.has_passed()) {
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, deadline.milliseconds_left(1000)) > 0) return true;
  }
  return false;
}

bool send_whole(int fd, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (!is_worth_another_try(sent) || !wait_for(fd, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> receive_whole(int fd, std::size_t bytes, const Deadline& deadline) {
  constexpr std::size_t kMostAtOnce = 1 << 16;  // memory grows with what has arrived, not with what was announced
  std::string received;
  while (received.size() < bytes) {
    const std::size_t before = received.size();
    received.resize(std::min(bytes, before + kMostAtOnce));
    const ssize_t got = ::recv(fd, received.data() + before, received.size() - before, 0);
    const bool again = is_worth_another_try(got);
    received.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0 && (!again || !wait_for(fd, POLLIN, deadline))) return std::nullopt;
  }
  return received;
}

}  // namespace tulle
