// What a beat says: how its sender's heartbeats are set.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/comm/heartbeat.hpp"
#include "tulle/comm/message.hpp"

namespace tulle {

struct Beat {
  std::uint64_t interval_microseconds = 0;
  std::uint64_t limit_microseconds = 0;

  /// The last one of a rank that ends in order: nothing more is to be heard of it.
  bool is_last() const { return *this == Beat(); }
  friend bool operator==(const Beat&, const Beat&) = default;
};

Beat beat_of(const Heartbeat& heartbeat);
Message encode_beat(const Beat& beat);
/// Throws bad_message where the segments are not those of a beat.
Beat decode_beat(std::span<const Buffer> segments);

}  // namespace tulle
