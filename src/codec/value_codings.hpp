// What the value codings share: one declaration of each, and the checks that all of them make.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "base/little_endian.hpp"
#include "stream/array_writer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/value_coding.hpp"

namespace tulle {

// One coding, one source file of that name, except f32, f16 and bf16, which share narrow.cpp.
#define TULLE_DECLARE_VALUE_CODING(name)                                                                \
  std::uint64_t name##_bytes(const ValueCodec& codec, std::uint64_t count);                             \
  Buffer encode_##name(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key); \
  void decode_##name(std::span<const std::byte> bytes, std::span<float> values, int threads);
TULLE_DECLARE_VALUE_CODING(f32)
TULLE_DECLARE_VALUE_CODING(f16)
TULLE_DECLARE_VALUE_CODING(bf16)
TULLE_DECLARE_VALUE_CODING(qsgd)
TULLE_DECLARE_VALUE_CODING(int8)
TULLE_DECLARE_VALUE_CODING(three_value_stochastic)
TULLE_DECLARE_VALUE_CODING(three_lc)
TULLE_DECLARE_VALUE_CODING(one_bit_mqe)
TULLE_DECLARE_VALUE_CODING(same_sign_mean)
TULLE_DECLARE_VALUE_CODING(codebook)
#undef TULLE_DECLARE_VALUE_CODING

// The same bytes as encode gives, and what decode makes of them to `decoded`, which may be where the values are.
#define TULLE_DECLARE_RECODING(name) \
  Buffer recode_##name(const ValueCodec& codec, std::span<const float> values, const RoundingKey& key, float* decoded);
TULLE_DECLARE_RECODING(f16)
TULLE_DECLARE_RECODING(qsgd)
TULLE_DECLARE_RECODING(int8)
TULLE_DECLARE_RECODING(three_value_stochastic)
TULLE_DECLARE_RECODING(three_lc)
// With the scales that are nearest (recode.hpp).
TULLE_DECLARE_RECODING(qsgd_nearest)
TULLE_DECLARE_RECODING(three_value_stochastic_nearest)
#undef TULLE_DECLARE_RECODING

/// Writes what was decoded of `values` past the cache, unless that is where they are.
inline ArrayWriter writer_of_decoded(std::span<const float> values, const float* decoded) {
  return ArrayWriter(decoded == nullptr || decoded == values.data() ? 0 : values.size());
}

/// Lets `decode(to)` write `count` values, which then are at `place`. REQUIRES: count <= kDecodedTile.
inline constexpr std::size_t kDecodedTile = std::size_t{1} << 12;
template <class Decode>
void write_decoded(const ArrayWriter& writer, float* place, std::size_t count, Decode decode) {
  float tile[kDecodedTile];
  float* const to = writer.is_past_cache() ? tile : place;
  decode(to);
  writer.copy(to, place, count);
}

[[noreturn]] inline void reject_values(std::string_view coding, const std::string& why) {
  throw Error(ErrorKind::bad_message, fmt::format("values coded as {}: {}", coding, why));
}

/// Throws bad_input that names the first value that is not finite. REQUIRES: there is one.
[[noreturn]] void throw_not_finite(std::string_view coding, std::span<const float> values);

inline void expect_bytes(std::string_view coding, std::span<const std::byte> bytes, std::uint64_t expected) {
  if (bytes.size() != expected) {
    reject_values(coding, fmt::format("{} bytes, expected {}", bytes.size(), expected));
  }
}

/// A scale as it travels: finite and not negative.
inline float load_scale(std::string_view coding, std::span<const std::byte> bytes, std::size_t offset) {
  const auto scale = load_at<float>(bytes, offset);
  if (!(scale >= 0 && scale <= std::numeric_limits<float>::max())) {
    reject_values(coding, fmt::format("the scale {} is not finite or negative", scale));
  }
  return scale;
}

/// The length of a bucket at the front of a message.
inline std::uint32_t load_bucket(std::string_view coding, std::span<const std::byte> bytes) {
  if (bytes.size() < 4) reject_values(coding, "the message ends before its parameters do");
  const auto bucket = load_at<std::uint32_t>(bytes, 0);
  if (bucket == 0) reject_values(coding, "a bucket of 0 values");
  return bucket;
}

constexpr std::uint64_t buckets_of(std::uint64_t count, std::uint64_t bucket) {
  return count / bucket + (count % bucket != 0);
}

}  // namespace tulle
