// Choosing by arithmetic, where a branch would be a coin toss to the predictor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tulle {

/// All bits set where `condition`, else none. Opaque to the compiler, which would make a branch of what follows.
inline std::size_t mask_of(bool condition) {
  std::size_t mask = std::size_t{0} - static_cast<std::size_t>(condition);
  asm("" : "+r"(mask));
  return mask;
}

/// The unsigned integer as wide as V.
template <class V>
using BitsOf = std::conditional_t<sizeof(V) == 8, std::uint64_t, std::uint32_t>;

/// `yes` where the mask is set, else `no`.
template <class V>
V select(std::size_t mask, V yes, V no) {
  using Bits = BitsOf<V>;
  const auto yes_bits = std::bit_cast<Bits>(yes);
  const auto no_bits = std::bit_cast<Bits>(no);
  return std::bit_cast<V>(no_bits ^ ((no_bits ^ yes_bits) & static_cast<Bits>(mask)));
}

}  // namespace tulle
