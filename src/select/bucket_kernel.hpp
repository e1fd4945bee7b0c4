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

  // How far beyond the last position kernels may read and write: a row of the largest number of columns.
  static constexpr std::size_t kPadding = 192;

  PoolVector<K> keys;
  PoolVector<K> few_keys;
  PoolVector<K> ranks;
  PoolVector<K> positions;  ///< the result: in increasing order
  PoolVector<std::uint64_t> words;
};

/// Finds the k largest magnitudes of `values`, of equal ones the lower positions, zeros left out. Keys from `end_key`
/// on count as zeros. Returns how many there are. REQUIRES: k >= 1; the scratch is as large as the bucket.
template <class V>
std::size_t top_of_bucket(std::span<const V> values, std::size_t k, std::uint64_t end_key, BucketScratch<V>& scratch);

/// Finds the k largest of the `columns` columns' maxima, where column c holds the positions c, c + columns, … : most of
/// the k largest. Where there would be few rows or very many columns, as top_of_bucket().
template <class V>
std::size_t top_of_columns(std::span<const V> values, std::size_t k, std::uint64_t end_key, std::size_t columns,
                           BucketScratch<V>& scratch);

}  // namespace tulle
