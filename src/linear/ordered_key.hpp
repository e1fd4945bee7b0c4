// Floats as indices: a sparse stream over all of them counts exactly, and an allreduce adds the ranks' counts.
#pragma once

#include <bit>
#include <cstdint>

namespace tulle::linear {

/// All keys of numbers are below this.
inline constexpr std::uint64_t kKeys = (std::uint64_t{1} << 32) - 1;

/// A number that is larger where the float is. −0 counts as 0. REQUIRES: not a NaN.
inline std::uint32_t ordered_key(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline float from_ordered_key(std::uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

}  // namespace tulle::linear
