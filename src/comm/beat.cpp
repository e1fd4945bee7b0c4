#include "comm/beat.hpp"

#include <cmath>

#include "base/little_endian.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr std::size_t kIntervalAt = 0, kLimitAt = 8, kBytes = 16;

std::uint64_t microseconds(double seconds) { return static_cast<std::uint64_t>(std::llround(seconds * 1e6)); }

}  // namespace

Beat beat_of(const Heartbeat& heartbeat) {
  return {microseconds(heartbeat.interval_seconds), microseconds(heartbeat.limit_seconds)};
}

Message encode_beat(const Beat& beat) {
  Buffer record = Buffer::allocate(kBytes);
  store_at(record.as_mutable<std::byte>(), kIntervalAt, beat.interval_microseconds);
  store_at(record.as_mutable<std::byte>(), kLimitAt, beat.limit_microseconds);
  MessageHeader header;
  header.kind = MessageKind::beat;
  Segments segments;
  segments.push_back(std::move(record));
  Buffer head = encode_message_head(header, segments);
  return {std::move(head), std::move(segments), nullptr, 0};
}

Beat decode_beat(std::span<const Buffer> segments) {
  if (segments.size() != 1 || segments[0].size() != kBytes) {
    throw Error(ErrorKind::bad_message, "a beat has another segment than its interval and its limit");
  }
  const std::span<const std::byte> record = segments[0].bytes();
  return {load_at<std::uint64_t>(record, kIntervalAt), load_at<std::uint64_t>(record, kLimitAt)};
}

}  // namespace tulle
