// The k-th largest of many keys.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "select/kth_of_few.hpp"
#include "tulle/base/buffer.hpp"

namespace tulle {

// Bins of one round. More do not fit the L1 cache together with the keys, fewer make more rounds. To clear and look
// through so many takes longer than another round of few keys.
inline constexpr int kBinBits = 11, kFewBinBits = 8;
inline constexpr std::size_t kKeysOfManyBins = 4096;

/// One round: leaves the keys of the bin in which the k-th largest is, and makes k its place among them.
template <int kBits, class K>
void keep_bin_of_kth(PoolVector<K>& keys, K smallest, K largest, std::uint64_t& k) {
  const int bits = static_cast<int>(std::bit_width(static_cast<K>(largest - smallest)));
  const int shift = std::max(0, bits - kBits);
  std::array<std::uint64_t, std::size_t{1} << kBits> bins{};
  for (const K key : keys) ++bins[(key - smallest) >> shift];
  std::size_t bin = bins.size() - 1;
  while (bins[bin] < k) k -= bins[bin--];
  std::erase_if(keys, [&](K key) { return (key - smallest) >> shift != bin; });
}

/// Radix selection between the smallest and the largest key: each round keeps the keys of one bin, until they are few.
/// Leaves only some of `keys`. O(n), also in the worst case. REQUIRES: 1 <= k <= keys.size().
template <class K>
K kth_largest(PoolVector<K>& keys, std::uint64_t k) {
  while (keys.size() * sizeof(K) > kFewKeysBytes) {
    const auto [smallest, largest] = std::ranges::minmax(keys);
    if (smallest == largest) return smallest;
    const auto keep = keys.size() < kKeysOfManyBins ? keep_bin_of_kth<kFewBinBits, K> : keep_bin_of_kth<kBinBits, K>;
    keep(keys, smallest, largest, k);
  }
  return kth_of_few(keys, k);
}

}  // namespace tulle
