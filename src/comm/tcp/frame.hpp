// What travels on a connection once two ranks know each other: frames.
//
// A frame begins with a prefix of 24 bytes. That of a message is followed by the message's head; by the addresses of
// its *pulled* segments, 8 bytes each, where it has any; by its *small* segments; by its *large* ones. Within each of
// these, segments keep their order; nothing is padded. Pulled segments do not travel: the receiver reads them from the
// sender's memory and then sends a frame `pulled`, which lets the sender free them.
//
// Prefix and head have checksums that are looked at before a length in them is believed: a flipped bit cannot make a
// receiver wait for bytes that nobody sends. What follows the head has one behind it, where the prefix says so.
//
// Which way a segment goes follows from its length, so the table of lengths in the head tells the receiver everything.
// Small segments come first because what they say (frames of streams) decides where the large ones are wanted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle {

enum class FrameKind : std::uint8_t {
  message = 1,
  pulled = 2,   ///< `number` says which message's segments have been read
  goodbye = 3,  ///< the sender has nothing more to say and will close the connection
};

inline constexpr std::size_t kFramePrefixBytes = 24;
/// CRC-32C of addresses and segments, behind them.
inline constexpr std::size_t kFrameTrailerBytes = 4;

struct FramePrefix {
  FrameKind kind = FrameKind::message;
  bool has_trailer = false;         ///< of a message: a checksum follows the last segment
  std::uint32_t head_bytes = 0;     ///< of a message
  std::uint64_t number = 0;         ///< of a message with pulled segments, from 1 on; else 0
  std::uint32_t head_checksum = 0;  ///< CRC-32C of a message's head
};

/// With a checksum of the prefix itself.
std::array<std::byte, kFramePrefixBytes> encode_frame_prefix(const FramePrefix& prefix);
/// Throws bad_message naming the field.
FramePrefix decode_frame_prefix(std::span<const std::byte, kFramePrefixBytes> bytes);
/// Throws bad_message, which says that `part` was damaged on the way, where the checksums differ.
void require_checksum(std::uint32_t actual, std::uint32_t expected, const char* part);

/// How a segment travels.
enum class Way { small, large, pulled };

/// Equal on all ranks.
struct FrameLimits {
  std::uint64_t detach_bytes = 0, pull_bytes = 0;

  Way way_of(std::uint64_t segment_bytes, bool may_pull) const {
    if (may_pull && segment_bytes >= pull_bytes) return Way::pulled;
    return segment_bytes >= detach_bytes ? Way::large : Way::small;
  }
};

}  // namespace tulle
