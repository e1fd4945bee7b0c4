// Making one pair of neighbours with equal indices.
#pragma once

#include <cstdint>
#include <type_traits>

#include "stream/dispatch.hpp"
#include "stream/pairs.hpp"
#include "stream/select.hpp"

namespace tulle {

/// fold.cpp: fold_twins() for sums, by SIMD. Integers are added as unsigned ones: overflow wraps.
std::size_t fold_sum(PairsView<float, std::uint32_t> sorted, PairsTarget<float, std::uint32_t> target);
std::size_t fold_sum(PairsView<double, std::uint64_t> sorted, PairsTarget<double, std::uint64_t> target);
std::size_t fold_sum(PairsView<std::uint32_t, std::uint32_t> sorted, PairsTarget<std::uint32_t, std::uint32_t> target);
std::size_t fold_sum(PairsView<std::uint64_t, std::uint64_t> sorted, PairsTarget<std::uint64_t, std::uint64_t> target);

/// Combines any number of equal indices from the left and returns the number of pairs left.
template <class V, class I, class Combine>
std::size_t fold_equal(PairsView<V, I> sorted, PairsTarget<V, I> target, Combine combine) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < sorted.size; ++written) {
    const I index = sorted.indices[i];
    V value = sorted.values[i];
    for (++i; i < sorted.size && sorted.indices[i] == index; ++i) value = combine(value, sorted.values[i]);
    target.indices[written] = index;
    target.values[written] = value;
  }
  return written;
}

/// fold_equal() where at most two indices are equal. REQUIRES: indices[-1] and indices[size] can be read and differ
/// from their neighbours, values[size] can be read; `target` has room for sorted.size pairs and kFoldSlack more.
inline constexpr std::size_t kFoldSlack = 64;
template <class V, class I, class Combine>
std::size_t fold_twins(PairsView<V, I> sorted, PairsTarget<V, I> target, Combine combine) {
  if constexpr (std::is_same_v<Combine, CombineSum<V>> && sizeof(V) == sizeof(I)) {
    using Sum = typename std::conditional_t<std::is_integral_v<V>, std::make_unsigned<V>, std::type_identity<V>>::type;
    return fold_sum({sorted.indices, reinterpret_cast<const Sum*>(sorted.values), sorted.size},
                    {target.indices, reinterpret_cast<Sum*>(target.values)});
  } else {
    return fold_equal(sorted, target, combine);
  }
}

}  // namespace tulle
