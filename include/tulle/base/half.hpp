// 16-bit floating-point storage types. They carry bits; arithmetic happens in f32.
//
// Threads: plain values and pure functions, for any thread.
#pragma once

#include <bit>
#include <cstdint>

#pragma GCC visibility push(default)
namespace tulle {

/// IEEE 754 binary16. Conversion from f32 rounds to nearest even; what is too large becomes infinite.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
  friend bool operator==(Half, Half) = default;
};

/// The upper half of an f32. Conversion from f32 rounds to nearest even.
struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  explicit Bfloat16(float value);
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  friend bool operator==(Bfloat16, Bfloat16) = default;
};

inline Half::Half(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep it one, quiet
    bits = static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    bits = static_cast<std::uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns the mantissa and rounds in hardware
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    bits = static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
}

inline Half::operator float() const {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, or a NaN, which becomes quiet as it does in hardware
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude < 0x400u) {  // zero and subnormals: the mantissa counts in units of 2^-24
    const float unsigned_value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(unsigned_value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

inline Bfloat16::Bfloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);
  } else {
    bits = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
}

}  // namespace tulle
#pragma GCC visibility pop
