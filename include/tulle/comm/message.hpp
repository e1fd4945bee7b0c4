// A message: a header of 48 bytes, the lengths of its segments, and the segments.
//
// The header says which operation the message belongs to and what that operation is, so that a rank that receives it
// can tell at once whether both do the same. docs/wire_format.md gives it byte by byte.
//
// Threads: pure functions, for any thread. A Message is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tulle/base/buffer.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Numbers are part of the wire format: never renumber.
enum class MessageKind : std::uint8_t {
  data = 1,
  poison = 2,    ///< the sender failed: segments say why, and from which operation of each channel on
  datagram = 3,  ///< belongs to no operation: see DatagramPort
  beat = 4,      ///< says that the sender lives: see Heartbeat
};

using Step = std::uint16_t;
/// A time in tenths of microseconds.
using Ticks = std::uint32_t;

/// A communicator's name, the same on all its members and no other communicator's of the job. The *allocator*, one of
/// its members, takes a slot of its own that is free; a slot that is used again has another generation, so that a
/// message for the old communicator is never taken for one of the new.
struct ContextId {
  std::uint32_t allocator = 0;  ///< a rank of the job, below 2^24
  std::uint16_t slot = 0;
  std::uint16_t generation = 0;

  friend auto operator<=>(const ContextId&, const ContextId&) = default;
};
inline constexpr std::uint32_t kMostAllocators = std::uint32_t{1} << 24;
/// Channels of a communicator, the first of which is its own order.
inline constexpr std::uint32_t kMostChannels = std::uint32_t{1} << 24;
/// The port of datagrams that ranks agree by. No program can open it.
inline constexpr std::uint32_t kAgreementPort = kMostChannels - 1;

inline constexpr std::size_t kMessageHeaderBytes = 48;

struct MessageHeader {
  MessageKind kind = MessageKind::data;
  bool has_checksum = false;        ///< a CRC-32C of the segments follows the table of lengths
  std::uint16_t segments = 0;       ///< how many
  Step step = 0;                    ///< which message of the operation
  ContextId context;                ///< the communicator
  std::uint16_t epoch = 0;          ///< of its membership: what another membership sent is refused
  std::uint32_t channel = 0;        ///< the order that `sequence` counts in, or a datagram's port
  std::uint64_t sequence = 0;       ///< the operation on that channel; below 2^48
  std::uint64_t payload_bytes = 0;  ///< of all segments together; below 2^48
  std::uint64_t fingerprint = 0;    ///< what the operation is: see CallSignature
  Ticks last_call = 0;  ///< how long the call before took on the slowest rank that the sender knows of; 0: unknown

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

/// Header, table of lengths and, on request, the checksum of the segments, which takes a pass over them. Throws
/// unsupported where a number is too large for its field.
Buffer encode_message_head(MessageHeader header, std::span<const Buffer> segments);

/// Reads and validates the header by itself. Throws bad_message naming the field.
MessageHeader decode_message_header(std::span<const std::byte> head);
/// The kind that a head of this library's making has, without a look at the rest. REQUIRES: encode_message_head() made
/// the head.
MessageKind kind_of_own_head(std::span<const std::byte> head);
/// The bytes that header, table and checksum take.
std::size_t message_head_bytes(const MessageHeader& header);
/// The length of each segment, from the table. Throws bad_message where they do not add up to payload_bytes.
/// REQUIRES: `header` is what decode_message_header(head) gave.
PoolVector<std::uint64_t> decode_segment_table(const MessageHeader& header, std::span<const std::byte> head);
/// Throws bad_message where the segments are not those that the head describes. One pass over them where there is a
/// checksum. REQUIRES: as above.
void validate_segments(const MessageHeader& header, std::span<const std::byte> head, std::span<const Buffer> segments);

/// What a transport carries. It keeps the message, and with it the buffers and the ticket, until they are sent.
struct Message {
  Buffer head;
  Segments segments;
  /// Released when the transport no longer reads the segments; an operation is over when all of its tickets are.
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
#pragma GCC visibility pop

template <>
struct std::hash<tulle::ContextId> {
  std::size_t operator()(const tulle::ContextId& id) const noexcept {
    const std::uint64_t all = std::uint64_t{id.allocator} << 32 | std::uint64_t{id.slot} << 16 | id.generation;
    return static_cast<std::size_t>((all * 0x9E3779B97F4A7C15u) >> 7);
  }
};
