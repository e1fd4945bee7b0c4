#include "comm/sim_parcel.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tulle {
namespace {

constexpr std::uint64_t kPhantomBit = std::uint64_t{1} << 63;  // of a length

std::size_t packed_bytes(const Buffer& buffer) {
  return sizeof(std::uint64_t) + (buffer.is_phantom() ? 0 : buffer.size());
}

std::byte* put(std::byte* to, const Buffer& buffer) {
  const std::uint64_t length = buffer.size() | (buffer.is_phantom() ? kPhantomBit : 0);
  std::memcpy(to, &length, sizeof length);
  return std::ranges::copy(buffer.bytes(), to + sizeof length).out;
}

Buffer take(const std::byte*& from) {
  std::uint64_t length = 0;
  std::memcpy(&length, from, sizeof length);
  from += sizeof length;
  if ((length & kPhantomBit) != 0) return Buffer::phantom(length & ~kPhantomBit);
  return Buffer::copy_of({std::exchange(from, from + length), length});
}

}  // namespace

SimParcel::SimParcel(Message message) {
  if (fits(message)) {
    content_ = pack(message);
  } else {
    content_ = std::move(message);
  }
}

Message SimParcel::open() && {
  if (const auto* packed = std::get_if<Packed>(&content_)) return unpack(*packed);
  return std::get<Message>(std::move(content_));
}

// Messages with data alone are left as they are: their receiver shares the sender's memory.
bool SimParcel::fits(const Message& message) {
  std::size_t bytes = packed_bytes(message.head);
  for (const Buffer& segment : message.segments) bytes += packed_bytes(segment);
  return bytes <= kRoom && std::ranges::any_of(message.segments, &Buffer::is_phantom);
}

SimParcel::Packed SimParcel::pack(const Message& message) {
  Packed packed;
  packed.depth = message.depth;
  packed.segments = static_cast<std::uint8_t>(message.segments.size());
  std::byte* end = put(packed.bytes.data(), message.head);
  for (const Buffer& segment : message.segments) end = put(end, segment);
  return packed;
}

Message SimParcel::unpack(const Packed& packed) {
  Message message;
  message.depth = packed.depth;
  const std::byte* next = packed.bytes.data();
  message.head = take(next);
  message.segments.reserve(packed.segments);
  for (int i = 0; i < packed.segments; ++i) message.segments.push_back(take(next));
  return message;
}

}  // namespace tulle
