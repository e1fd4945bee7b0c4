// The k-th largest of many keys.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>

#include "tulle/base/buffer.hpp"

namespace tulle {

// Bins of one round. More do not fit the L1 cache together with the keys, fewer make more rounds.
inline constexpr int kBinBits = 11;
using KeyBins = std::array<std::uint64_t, std::size_t{1} << kBinBits>;

// Below this many keys a histogram costs more than sorting does.
inline constexpr std::size_t kFewKeys = 256;

/// Radix selection between the smallest and the largest key: each round keeps the keys of one of 2048 bins. Leaves
/// `keys` in disorder. O(n), also in the worst case. REQUIRES: 1 <= k <= keys.size().
template <class K>
K kth_largest(PoolVector<K>& keys, std::uint64_t k) {
  while (keys.size() > kFewKeys) {
    const auto [smallest, largest] = std::ranges::minmax(keys);
    if (smallest == largest) return smallest;
    const int bits = static_cast<int>(std::bit_width(static_cast<K>(largest - smallest)));
    const int shift = std::max(0, bits - kBinBits);
    KeyBins bins{};
    for (const K key : keys) ++bins[(key - smallest) >> shift];
    std::size_t bin = bins.size() - 1;
    while (bins[bin] < k) k -= bins[bin--];
    std::erase_if(keys, [&](K key) { return (key - smallest) >> shift != bin; });
  }
  const auto place = keys.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::ranges::nth_element(keys, place, std::greater<K>());
  return *place;
}

}  // namespace tulle
