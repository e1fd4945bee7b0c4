// Coding values and decoding them again at once, as a rank does that goes on with what everyone else gets.
//
// Done one after the other this reads the values, writes codes, reads those and writes values, each by a pass over
// memory. Done piece by piece the codes are decoded while they are in the cache, and values that stay where they are
// are read and written by one pass.
#pragma once

#include "tulle/codec/frame.hpp"
#include "tulle/codec/value_coding.hpp"

namespace tulle {

/// What the scales of codings that round stochastically are. Theirs make the coding right on average, by values that
/// may be many times larger than what was coded; a sender that keeps what was lost would keep more every time. The
/// scale that is nearest to the values leaves never more than they were, and less on average: for error feedback.
/// Decoders do not know the difference.
enum class Scales { published, nearest };

struct RecodedValues {
  Buffer bytes;    ///< as encode_values() gives them
  Buffer decoded;  ///< as decode_values() makes of those
};

/// `landing` is as in decode_values(), and may be the memory of `values`. Throws as encode_values(); the bytes of the
/// landing are then not defined.
RecodedValues recode_values(const ValueCodec& codec, ValueType type, const Buffer& values, const RoundingKey& key,
                            Buffer landing = {}, Scales scales = Scales::published);

/// Appends the segments that encode_frame() would, and gives the stream that decode_frame() would make of them. Values
/// are decoded to `landing` where that has their size. Throws as encode_frame().
AnyStream recode_frame(const AnyStream& stream, const FrameLabel& label, const FrameCodings& codings, Buffer landing,
                       Segments& segments, Scales scales = Scales::published);

}  // namespace tulle
