// The largest values of one bucket: short arrays, where selecting costs as much as reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stream/select.hpp"
#include "tulle/base/buffer.hpp"

namespace tulle {

/// Memory for the keys of one bucket and for those that are left of it.
template <class V>
struct BucketScratch {
  using K = BitsOf<V>;

  explicit BucketScratch(std::size_t bucket)
      : keys(bucket + kPadding),
        few_keys(keys.size()),
        ranks(keys.size()),
        positions(keys.size()),
        words(keys.size() / 64) {}

  // How far beyond the last position kernels may read and write: a word of the bitmap and two vectors.
  static constexpr std::size_t kPadding = 128;

  PoolVector<K> keys;
  PoolVector<K> few_keys;
  PoolVector<K> ranks;
  PoolVector<K> positions;  ///< the result: in increasing order
  PoolVector<std::uint64_t> words;
};

/// Finds values among which the k largest magnitudes are: about 1.4k where k is at most 64 and an eighth of the bucket,
/// else all. Zeros are left out, and keys from `end_key` on count as zeros. Returns how many there are.
/// REQUIRES: k >= 1; the scratch is as large as the bucket.
template <class V>
std::size_t bucket_candidates(std::span<const V> values, std::size_t k, std::uint64_t end_key,
                              BucketScratch<V>& scratch);

/// Keeps the k largest of `few` candidates, of equal ones the lower positions. Returns how many there are.
template <class V>
std::size_t keep_largest(std::size_t few, std::size_t k, BucketScratch<V>& scratch);

}  // namespace tulle
