// Whole writes and reads on non-blocking sockets, for meeting alone: bounded by a deadline.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/clock.hpp"

namespace tulle {

/// True when the socket became ready for `events` of poll() in time.
bool wait_for(int fd, short events, const Deadline& deadline);
/// False where the other side is gone or the time is over.
bool send_whole(int fd, std::string_view bytes, const Deadline& deadline);
/// True when the other side has closed the connection, or it is broken. Never waits.
bool has_hung_up(int fd);
/// What is for one socket.
struct Parcel {
  int fd;
  std::string_view bytes;
};
/// Sends all at the same time, so that one that does not read holds up nobody. Gives those that were not taken whole,
/// by their places in `parcels`.
std::vector<std::size_t> send_all(std::vector<Parcel> parcels, const Deadline& deadline);
/// Exactly `bytes` of them, or nothing where the other side is gone or the time is over.
std::optional<std::string> receive_whole(int fd, std::size_t bytes, const Deadline& deadline);

}  // namespace tulle
