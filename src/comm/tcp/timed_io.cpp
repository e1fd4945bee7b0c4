#include "comm/tcp/timed_io.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
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

bool has_hung_up(int fd) {
  char byte = 0;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && !is_worth_another_try(got));
}

std::vector<std::size_t> send_all(std::vector<Parcel> parcels, const Deadline& deadline) {
  std::vector<std::size_t> lost;
  std::vector<pollfd> entries;
  for (const Parcel& parcel : parcels) entries.push_back({parcel.fd, POLLOUT, 0});
  const auto is_done = [](const pollfd& entry) { return entry.fd < 0; };
  while (!std::ranges::all_of(entries, is_done) && !deadline.has_passed()) {
    if (::poll(entries.data(), entries.size(), deadline.milliseconds_left(1000)) <= 0) continue;
    for (std::size_t i = 0; i < parcels.size(); ++i) {
      if (entries[i].fd < 0 || entries[i].revents == 0) continue;
      const ssize_t sent = ::send(parcels[i].fd, parcels[i].bytes.data(), parcels[i].bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && !is_worth_another_try(sent)) lost.push_back(i);
      if (sent > 0) parcels[i].bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (parcels[i].bytes.empty() || (!lost.empty() && lost.back() == i)) entries[i].fd = -1;
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!is_done(entries[i])) lost.push_back(i);
  }
  std::ranges::sort(lost);
  return lost;
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
