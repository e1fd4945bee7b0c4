// Which bytes the values of a stream travel as.
//
// Some codings are exact, some stochastic and unbiased, some biased and meant for error feedback: docs/codecs.md says
// which and compares them, docs/wire_format.md gives the layouts. Every coding computes in f32; f64 is rounded to it
// first. Same values, codec and key give the same bytes on every processor and for any number of threads.
//
// Threads: the functions keep no state and may be called from any thread. Encoding and decoding compute on up to
// `threads` threads of TBB's and return when all are done. Both take about one pass over the values, for types other
// than f32 two, with a copy of the values in f32.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tulle/base/buffer.hpp"
#include "tulle/base/value_type.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// How values travel. Numbers are part of the wire format: never renumber.
enum class ValueCoding : std::uint8_t {
  raw = 1,
  f32 = 2,
  f16 = 3,
  bf16 = 4,
  qsgd = 5,
  int8 = 6,
  three_value_stochastic = 7,
  three_lc = 8,
  one_bit_mqe = 9,
  same_sign_mean = 10,
  codebook = 11,
};
std::string_view to_string(ValueCoding coding);

/// What a bucket's scale is. Numbers are part of the wire format: never renumber.
enum class ScaleNorm : std::uint8_t { l2 = 1, max = 2 };
std::string_view to_string(ScaleNorm norm);

/// A bucket that holds any array, "all" in texts: one scale for a whole tensor, up to this many values.
inline constexpr std::uint32_t kWholeArray = 0xfffffff8;

/// What to code values with. Equal on all ranks. A coding reads the fields that docs/codecs.md lists for it.
struct ValueCodec {
  ValueCoding coding = ValueCoding::raw;
  int bits = 4;                    ///< qsgd: 2, 4 or 8; codebook: 2 to 8
  std::uint32_t bucket = 1024;     ///< qsgd, int8, one_bit_mqe: values that share a scale; kWholeArray: all
  ScaleNorm norm = ScaleNorm::l2;  ///< qsgd
  double sigma = 6.0;              ///< codebook: standard deviations that the bins cover together
  double sparsity = 1.0;           ///< three_lc: the paper's s, 1 <= s < 2
  bool zero_runs = true;           ///< three_lc
  int threads = 1;                 ///< of encoding and, in collectives, of decoding; 0: all that there are
  friend bool operator==(const ValueCodec&, const ValueCodec&) = default;
};

/// What stochastic rounding draws from: same key, same bytes. `position` tells apart the pieces of one step.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t rank = 0;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
};

/// "qsgd", "qsgd:bits=4,bucket=1024,norm=max", "int8:bucket=all", "three_lc:s=1.75,zero_runs=off". Throws bad_input
/// that lists what there is.
ValueCodec parse_value_codec(std::string_view text);
/// What parse_value_codec() takes, with every option of the coding. Threads are left out.
std::string to_string(const ValueCodec& codec);
/// Throws bad_input naming the field that is out of its range.
void validate(const ValueCodec& codec);

/// Whether zeros among other values are decoded as zeros, so that the coding may carry a dense form of sparse data.
bool keeps_zeros(ValueCoding coding);

/// The most bytes that `count` values take; exact for all but three_lc, which is shorter where zeros come in runs.
/// REQUIRES: validate(codec) does not throw.
std::uint64_t encoded_value_bytes(const ValueCodec& codec, ValueType type, std::uint64_t count);

/// Codes `values` of `type`. Throws as validate(), and bad_input for integers with a coding other than raw. raw shares
/// the memory of `values` unless that is borrowed. f32, f16 and bf16 carry NaN and infinity; codings after them throw
/// bad_input naming the first index that is neither. What decoding needs to know (bits, bucket, ...) is at the front of
/// the bytes.
Buffer encode_values(const ValueCodec& codec, ValueType type, const Buffer& values, const RoundingKey& key);

/// Gives `count` values of `type`, in `landing` where that has their size, else in new memory.
/// Trusts nothing: lengths, parameters, levels, padding and trailing bytes are checked, and memory is taken only when
/// the bytes can hold `count` values. Throws bad_message naming what is wrong.
/// `threads` decode qsgd, int8, three_value_stochastic and three_lc (0: all that there are); other codings take one.
/// REQUIRES: nobody else reads or writes the landing, whose bytes are not defined where this throws.
Buffer decode_values(ValueCoding coding, ValueType type, std::span<const std::byte> bytes, std::uint64_t count,
                     Buffer landing = {}, int threads = 1);

}  // namespace tulle
#pragma GCC visibility pop
