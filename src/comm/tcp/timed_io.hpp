// Whole writes and reads on non-blocking sockets, for the rendezvous alone: bounded by a deadline.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "comm/tcp/clock.hpp"

namespace tulle {

/// True when the socket became ready for `events` of poll() in time.
bool wait_for(int fd, short events, const Deadline& deadline);
/// False where the other side is gone or the time is over.
bool send_whole(int fd, std::string_view bytes, const Deadline& deadline);
/// Exactly `bytes` of them, or nothing where the other side is gone or the time is over.
std::optional<std::string> receive_whole(int fd, std::size_t bytes, const Deadline& deadline);

}  // namespace tulle
