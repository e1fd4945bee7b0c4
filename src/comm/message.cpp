#include "tulle/comm/message.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// Offsets of the header's fields, as in docs/wire_format.md.
constexpr std::size_t kMagicAt = 0, kVersionAt = 1, kKindAt = 2, kFlagsAt = 3, kSegmentsAt = 4, kStepAt = 6,
                      kAllocatorAt = 8, kSlotAt = 11, kGenerationAt = 13, kEpochAt = 15, kChannelAt = 17,
                      kSequenceAt = 20, kPayloadBytesAt = 26, kFingerprintAt = 32, kLastCallAt = 40,
                      kHeaderChecksumAt = 44;
// Of fields whose width is no type's.
constexpr std::size_t kAllocatorBytes = 3, kChannelBytes = 3, kSequenceBytes = 6, kPayloadBytesBytes = 6;
constexpr std::uint8_t kMagic = 0x54;  // "T"
constexpr std::uint8_t kVersion = 2;
constexpr std::uint8_t kHasChecksum = 1;

[[noreturn]] void reject(std::string_view field, const std::string& why) {
  throw Error(ErrorKind::bad_message, fmt::format("message field '{}': {}", field, why));
}

void require_width(std::uint64_t value, std::size_t bytes, std::string_view what) {
  if (value >> (8 * bytes) != 0)
    throw Error(ErrorKind::unsupported, fmt::format("{} of 2^{} or more", what, 8 * bytes));
}

void store_low_bytes(std::span<std::byte> bytes, std::size_t at, std::uint64_t value, std::size_t count) {
  std::memcpy(bytes.data() + at, &value, count);
}

std::uint64_t load_low_bytes(std::span<const std::byte> bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, count);
  return value;
}

void store_header(std::span<std::byte> head, const MessageHeader& header) {
  store_at(head, kMagicAt, kMagic);
  store_at(head, kVersionAt, kVersion);
  store_at(head, kKindAt, header.kind);
  store_at(head, kFlagsAt, header.has_checksum ? kHasChecksum : std::uint8_t{0});
  store_at(head, kSegmentsAt, header.segments);
  store_at(head, kStepAt, header.step);
  store_low_bytes(head, kAllocatorAt, header.context.allocator, kAllocatorBytes);
  store_at(head, kSlotAt, header.context.slot);
  store_at(head, kGenerationAt, header.context.generation);
  store_at(head, kEpochAt, header.epoch);
  store_low_bytes(head, kChannelAt, header.channel, kChannelBytes);
  store_low_bytes(head, kSequenceAt, header.sequence, kSequenceBytes);
  store_low_bytes(head, kPayloadBytesAt, header.payload_bytes, kPayloadBytesBytes);
  store_at(head, kFingerprintAt, header.fingerprint);
  store_at(head, kLastCallAt, header.last_call);
  store_at(head, kHeaderChecksumAt, crc32c(head.first(kHeaderChecksumAt)));
}

MessageHeader load_header(std::span<const std::byte> head) {
  MessageHeader header;
  header.kind = load_at<MessageKind>(head, kKindAt);
  header.has_checksum = load_at<std::uint8_t>(head, kFlagsAt) == kHasChecksum;
  header.segments = load_at<std::uint16_t>(head, kSegmentsAt);
  header.step = load_at<Step>(head, kStepAt);
  header.context.allocator = static_cast<std::uint32_t>(load_low_bytes(head, kAllocatorAt, kAllocatorBytes));
  header.context.slot = load_at<std::uint16_t>(head, kSlotAt);
  header.context.generation = load_at<std::uint16_t>(head, kGenerationAt);
  header.epoch = load_at<std::uint16_t>(head, kEpochAt);
  header.channel = static_cast<std::uint32_t>(load_low_bytes(head, kChannelAt, kChannelBytes));
  header.sequence = load_low_bytes(head, kSequenceAt, kSequenceBytes);
  header.payload_bytes = load_low_bytes(head, kPayloadBytesAt, kPayloadBytesBytes);
  header.fingerprint = load_at<std::uint64_t>(head, kFingerprintAt);
  header.last_call = load_at<Ticks>(head, kLastCallAt);
  return header;
}

std::uint32_t checksum_of(std::span<const Buffer> segments) {
  std::uint32_t checksum = 0;
  for (const Buffer& segment : segments) checksum = crc32c(segment.bytes(), checksum);
  return checksum;
}

}  // namespace

std::size_t message_head_bytes(const MessageHeader& header) {
  return kMessageHeaderBytes + 8 * (std::size_t{header.segments} + (header.has_checksum ? 1 : 0));
}

Buffer encode_message_head(MessageHeader header, std::span<const Buffer> segments) {
  if (segments.size() > 0xffff) throw Error(ErrorKind::unsupported, "a message of more than 65535 segments");
  header.segments = static_cast<std::uint16_t>(segments.size());
  header.payload_bytes = 0;
  for (const Buffer& segment : segments) header.payload_bytes += segment.size();
  require_width(header.payload_bytes, kPayloadBytesBytes, "a message's bytes");
  require_width(header.sequence, kSequenceBytes, "a sequence number");

  Buffer buffer = Buffer::allocate(message_head_bytes(header));
  const auto head = buffer.as_mutable<std::byte>();
  store_header(head, header);
  std::size_t at = kMessageHeaderBytes;
  for (const Buffer& segment : segments) {
    store_at(head, at, std::uint64_t{segment.size()});
    at += 8;
  }
  if (header.has_checksum) store_at(head, at, std::uint64_t{checksum_of(segments)});
  return buffer;
}

MessageHeader decode_message_header(std::span<const std::byte> head) {
  if (head.size() < kMessageHeaderBytes) reject("header", fmt::format("is cut off after {} bytes", head.size()));
  if (load_at<std::uint8_t>(head, kMagicAt) != kMagic) reject("magic", "is not that of a Tulle message");
  if (load_at<std::uint8_t>(head, kVersionAt) != kVersion) {
    reject("version", fmt::format("is {}, this library speaks {}", load_at<std::uint8_t>(head, kVersionAt), kVersion));
  }
  if (load_at<std::uint32_t>(head, kHeaderChecksumAt) != crc32c(head.first(kHeaderChecksumAt))) {
    reject("header_checksum", "does not match the header");
  }
  const MessageHeader header = load_header(head);
  if (header.kind < MessageKind::data || header.kind > MessageKind::beat) reject("kind", "is unknown");
  const auto flags = load_at<std::uint8_t>(head, kFlagsAt);
  if ((flags & ~kHasChecksum) != 0) reject("flags", fmt::format("{:#x} has bits that are not defined", flags));
  if (head.size() < message_head_bytes(header)) reject("segments", "the table of lengths is cut off");
  return header;
}

MessageKind kind_of_own_head(std::span<const std::byte> head) { return load_at<MessageKind>(head, kKindAt); }

PoolVector<std::uint64_t> decode_segment_table(const MessageHeader& header, std::span<const std::byte> head) {
  PoolVector<std::uint64_t> lengths(header.segments);
  std::uint64_t left = header.payload_bytes;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = load_at<std::uint64_t>(head, kMessageHeaderBytes + 8 * i);
    if (lengths[i] > left) reject("segments", "the lengths add up to more than payload_bytes");
    left -= lengths[i];
  }
  if (left != 0) reject("payload_bytes", fmt::format("{} bytes are in no segment", left));
  return lengths;
}

void validate_segments(const MessageHeader& header, std::span<const std::byte> head, std::span<const Buffer> segments) {
  const auto lengths = decode_segment_table(header, head);
  if (segments.size() != lengths.size()) {
    reject("segments", fmt::format("{} of {} arrived", segments.size(), lengths.size()));
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (segments[i].size() != lengths[i]) {
      reject("segments", fmt::format("segment {} is cut off: {} of {} bytes", i, segments[i].size(), lengths[i]));
    }
  }
  if (header.has_checksum) {
    const auto expected = load_at<std::uint64_t>(head, kMessageHeaderBytes + 8 * lengths.size());
    if (checksum_of(segments) != expected) reject("payload_checksum", "does not match the segments");
  }
}

}  // namespace tulle
