// Values as levels of a scale: what qsgd, int8 and three_value_stochastic have in common.
//
// With s levels to each side a value becomes a *code*, level + s, from 0 to 2s. Its magnitude is taken as a multiple of
// scale/s in fixed point with 16 binary places and rounded by adding a number below 1 and dropping the places: a random
// number for stochastic rounding, a half for rounding to nearest. The chance to round up is thus the fractional part
// to within 2^-17. Arithmetic after the one f32 product is on integers: same codes on every target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/rounding.hpp"

namespace tulle {

/// Codes of `values`; to nearest, halves away from zero, where `stream` is null. Draws groups from `first_group` on.
/// REQUIRES: values are finite, scale is at least 0, levels at most 127, as many codes as values.
void quantize(std::span<const float> values, float scale, unsigned levels, const RoundingStream* stream,
              std::uint64_t first_group, std::uint8_t* codes);

/// sign · scale · level / s for each code. Returns the largest code; above 2s the values are worthless.
unsigned dequantize(std::span<const std::uint8_t> codes, float scale, unsigned levels, float* values);

/// Codes of 1, 2, 4 or 8 bits without holes, the first in the lowest bits; the rest of the last byte is zero.
void pack_codes(std::span<const std::uint8_t> codes, int bits, std::byte* bytes);
void unpack_codes(const std::byte* bytes, int bits, std::span<std::uint8_t> codes);

constexpr std::uint64_t packed_bytes(std::uint64_t count, int bits) {
  const auto width = static_cast<std::uint64_t>(bits);
  return count / 8 * width + (count % 8 * width + 7) / 8;
}

}  // namespace tulle
