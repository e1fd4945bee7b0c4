// The wire format of a stream: a *frame* is a head of 56 bytes and its arrays, each a segment of a message.
//
// An owner encodes its block once and everyone forwards the bytes as they are; they are decoded where they are used.
// docs/wire_format.md gives the format byte by byte. Decoding trusts nothing: it validates everything before use.
//
// Threads: the functions keep no state and may be called from any thread; a landing is written by one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/base/buffer.hpp"
#include "tulle/codec/index_coding.hpp"
#include "tulle/codec/value_coding.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

inline constexpr std::size_t kFrameHeadBytes = 56;

/// What the head of a frame says.
struct FrameHead {
  Layout layout = Layout::sparse;
  ValueType type = ValueType::f32;
  IndexCoding index_coding = IndexCoding::none;
  ValueCoding value_coding = ValueCoding::raw;
  OpCode op = OpCode::sum;
  std::uint64_t sequence = 0;  ///< of the operation on its channel
  std::uint64_t dimension = 0;
  Range range;
  std::uint64_t nnz = 0;
  std::uint64_t contributed = 0;  ///< non-zeros of all contributions that were reduced into this frame

  /// Segments of the frame, the head included: 3 when sparse (head, indices, values), 2 when dense (head, values).
  std::size_t segment_count() const { return layout == Layout::sparse ? 3 : 2; }
  friend bool operator==(const FrameHead&, const FrameHead&) = default;
};

/// What a frame says beside its stream.
struct FrameLabel {
  OpCode op = OpCode::sum;
  std::uint64_t sequence = 0;
  std::uint64_t contributed = 0;
};

/// How a frame's arrays travel. Raw ones share the stream's memory unless it is borrowed; the others are copies.
struct FrameCodings {
  IndexCoding indices = IndexCoding::raw;  ///< of a sparse stream; a dense one has none
  ValueCodec values;
  RoundingKey rounding;  ///< of codings that round stochastically
};

/// What a receiver knows beforehand about every frame of an operation.
struct FrameExpectation {
  ValueType type = ValueType::f32;
  OpCode op = OpCode::sum;
  std::uint64_t sequence = 0;
  std::uint64_t dimension = 0;
  int threads = 1;  ///< that decode coded values; 0: all that there are
};

/// Memory that the arrays of a sparse frame, and the coded values of a dense one, are decoded to: slices of larger
/// arrays. Where one is empty, the array stays where it arrived, or gets new memory. REQUIRES: the right lengths;
/// nobody else reads or writes it.
struct PairLanding {
  Buffer indices;
  Buffer values;
};

struct DecodedFrame {
  FrameHead head;
  AnyStream stream;
  std::uint64_t data_bytes = 0;  ///< of the arrays, as they travelled
};

/// Appends the frame's segments. Returns the bytes of its arrays. Throws as encode_values(); a part of the frame may
/// then have been appended.
std::uint64_t encode_frame(const AnyStream& stream, const FrameLabel& label, const FrameCodings& codings,
                           Segments& segments);

/// A head by itself.
Buffer encode_frame_head(const FrameHead& head);
/// Reads and validates a head by itself. Throws bad_message naming the field.
FrameHead decode_frame_head(std::span<const std::byte> bytes);
/// The same, and that it is one of the operation's: what it says about sizes may then be believed.
FrameHead decode_frame_head(std::span<const std::byte> bytes, const FrameExpectation& expectation);

/// Decodes the frame that `segments` starts with and removes it from the front; raw arrays share the segments' memory.
/// Throws bad_message naming the field where anything is not as expected or not valid in itself; `segments` is then as
/// it was. Raw indices cost one pass, to check them; what is coded, a pass to decode it.
DecodedFrame decode_frame(std::span<const Buffer>& segments, const FrameExpectation& expectation,
                          const PairLanding& landing = {});

}  // namespace tulle
#pragma GCC visibility pop
