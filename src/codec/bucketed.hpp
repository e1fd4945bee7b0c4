// Arrays of levels in buckets, as qsgd and int8 send them: one f32 scale for each bucket, then the packed codes.
#pragma once

#include <span>

#include "codec/levels.hpp"
#include "codec/recode.hpp"

namespace tulle {

struct BucketedLevels {
  int bits = 4;
  unsigned levels = 7;  ///< to each side: 2^(bits − 1) − 1
  std::uint32_t bucket = 1024;
  ScaleNorm norm = ScaleNorm::l2;
  Scales scales = Scales::published;
};

constexpr unsigned levels_of(int bits) { return (1u << (bits - 1)) - 1; }

/// Bytes of scales and codes.
std::uint64_t bucketed_bytes(const BucketedLevels& shape, std::uint64_t count);
/// Writes them to `out`. Rounds to nearest where `stream` is null. What decode_bucketed() would give is written to
/// `decoded`, unless that is null; it may be where the values are. Throws bad_input where a value is not finite.
void encode_bucketed(std::string_view coding, const BucketedLevels& shape, std::span<const float> values,
                     const RoundingStream* stream, int threads, std::byte* out, float* decoded = nullptr);
/// Throws bad_message where lengths, scales, codes or padding are wrong.
void decode_bucketed(std::string_view coding, const BucketedLevels& shape, std::span<const std::byte> bytes,
                     std::span<float> values, int threads);

}  // namespace tulle
