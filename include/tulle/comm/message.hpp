// A message: a header of 32 bytes, the lengths of its segments, and the segments.
//
// The header says which operation the message belongs to and what that operation is, so that a rank that receives it
// can tell at once whether both do the same. docs/wire_format.md gives it byte by byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tulle/base/buffer.hpp"

namespace tulle {

/// Numbers are part of the wire format: never renumber.
enum class MessageKind : std::uint8_t {
  data = 1,
  poison = 2,  ///< the sender failed; the one segment says why
};

using Step = std::uint16_t;

inline constexpr std::size_t kMessageHeaderBytes = 32;

struct MessageHeader {
  MessageKind kind = MessageKind::data;
  bool has_checksum = false;         ///< a CRC-32C of the segments follows the table of lengths
  std::uint16_t context = 0;         ///< the communicator
  std::uint16_t segments = 0;        ///< how many
  std::uint32_t sequence = 0;        ///< the operation on that communicator
  Step step = 0;                     ///< which message of the operation
  std::uint64_t payload_bytes = 0;   ///< of all segments together; below 2^48
  std::uint64_t fingerprint = 0;     ///< what the operation is: see CallSignature

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

/// Header, table of lengths and, on request, the checksum of the segments.
Buffer encode_message_head(MessageHeader header, std::span<const Buffer> segments);

/// Reads and validates the header by itself. Throws bad_message naming the field.
MessageHeader decode_message_header(std::span<const std::byte> head);
/// The bytes that header, table and checksum take.
std::size_t message_head_bytes(const MessageHeader& header);
/// The length of each segment, from the table. Throws bad_message where they do not add up to payload_bytes.
PoolVector<std::uint64_t> decode_segment_table(const MessageHeader& header, std::span<const std::byte> head);
/// Throws bad_message where the segments are not those that the head describes.
void validate_segments(const MessageHeader& header, std::span<const std::byte> head, std::span<const Buffer> segments);

/// What a transport carries. It keeps the message, and with it the buffers and the ticket, until they are sent.
struct Message {
  Buffer head;
  Segments segments;
  /// Released when the transport no longer reads the segments; the operation counts its copies.
  std::shared_ptr<void> ticket;
  /// How many messages one after the other led to this one. Carried by the simulator alone.
  std::uint32_t depth = 0;

  std::uint64_t bytes() const {
    std::uint64_t total = head.size();
    for (const Buffer& segment : segments) total += segment.size();
    return total;
  }
};

}  // namespace tulle
