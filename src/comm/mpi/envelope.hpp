// How a message is cut into MPI messages.
//
// The *envelope* holds the head and every small segment, each at a multiple of 8 bytes, in one piece. A segment of
// detach_bytes or more is *detached*: it follows the envelope as messages of its own, in pieces of chunk_bytes, sent
// from where it lies and received where it is wanted. Which segments are detached is not said anywhere: both sides
// derive it from the table of lengths in the head, by the same walk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tulle/base/buffer.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/mpi.hpp"

namespace tulle {

/// Walks over the segments of a message, in order.
class EnvelopeWalk {
 public:
  EnvelopeWalk(std::size_t head_bytes, const MpiOptions& options)
      : options_(options), limit_(head_bytes + options.chunk_bytes), bytes_(head_bytes) {}

  /// Where in the envelope a next segment of this length lies; nothing where it is detached.
  std::optional<std::size_t> place(std::uint64_t segment_bytes) {
    const std::size_t offset = (bytes_ + 7) / 8 * 8;
    if (segment_bytes == 0) return bytes_;
    if (segment_bytes >= options_.detach_bytes || offset + segment_bytes > limit_) return std::nullopt;
    bytes_ = offset + segment_bytes;
    return offset;
  }
  /// Of the envelope, with the segments placed so far.
  std::size_t bytes() const { return bytes_; }

 private:
  const MpiOptions& options_;
  std::size_t limit_;
  std::size_t bytes_;
};

/// The envelope of `message`: its head where no segment travels with it, else a copy of head and small segments.
Buffer seal_envelope(const Message& message, const MpiOptions& options);

/// What an envelope that arrived holds: the segments that came with it are slices of it, the detached ones are empty.
struct OpenedEnvelope {
  Message message;
  PoolVector<std::uint64_t> lengths;  ///< of all segments
};
/// Throws bad_message where the bytes are not an envelope, or not as long as the head says.
OpenedEnvelope open_envelope(const Buffer& envelope, const MpiOptions& options);

/// Calls `piece(offset, length)` for every MPI message that a detached segment travels in.
template <class Piece>
void for_each_piece(std::uint64_t segment_bytes, const MpiOptions& options, Piece piece) {
  for (std::uint64_t offset = 0; offset < segment_bytes; offset += options.chunk_bytes) {
    piece(offset, static_cast<int>(std::min(options.chunk_bytes, segment_bytes - offset)));
  }
}

}  // namespace tulle
