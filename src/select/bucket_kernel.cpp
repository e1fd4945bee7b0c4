// How it works. The bucket's keys are laid out in rows, and the maximum of each column is found. At least k keys reach
// the k-th largest of the *maxima*, which is thus a bound; with 2k columns about 1.4k do. They are written to a short
// array, where the k largest are found by *ranks*: for each key, how many are larger, all against all, without a
// branch.
#include "select/bucket_kernel.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/bucket_kernel.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "select/key.hpp"
#include "stream/emit.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns come in multiples of this. No vector that we use is wider.
constexpr std::size_t kLanes = 16;
template <class K>
using Tag = hn::CappedTag<K, kLanes>;

// All against all grows with the square; sorting does not.
constexpr std::size_t kManyKeys = 128;

constexpr std::size_t round_up(std::size_t count, std::size_t unit) { return (count + unit - 1) / unit * unit; }

// Followed by a word's worth of zeros.
template <class V, class K>
void make_keys(const V* values, std::size_t count, Key end_key, K* keys) {
  const auto end = static_cast<K>(std::min<Key>(end_key, std::numeric_limits<K>::max()));
  for (std::size_t i = 0; i < count; ++i) {
    const K key = magnitude_key(values[i]);
    keys[i] = key < end ? key : K{0};
  }
  const Tag<K> tag;
  for (std::size_t p = 0; p < 64; p += hn::Lanes(tag)) hn::StoreU(hn::Zero(tag), tag, keys + count + p);
}

// ranks[i]: how many keys are larger than keys[i]. REQUIRES: room, in both arrays, up to a multiple of two vectors.
template <class K>
void rank_keys(const K* keys, std::size_t count, K* ranks) {
  const Tag<K> tag;
  const auto one = hn::Set(tag, K{1});
  const std::size_t lanes = hn::Lanes(tag);
  for (std::size_t p = 0; p < count; p += 2 * lanes) {
    const auto key0 = hn::LoadU(tag, keys + p);
    const auto key1 = hn::LoadU(tag, keys + p + lanes);
    auto larger0 = hn::Zero(tag);
    auto larger1 = hn::Zero(tag);
    for (std::size_t i = 0; i < count; ++i) {
      const auto other = hn::Set(tag, keys[i]);
      larger0 = hn::Add(larger0, hn::IfThenElseZero(hn::Gt(other, key0), one));
      larger1 = hn::Add(larger1, hn::IfThenElseZero(hn::Gt(other, key1), one));
    }
    hn::StoreU(larger0, tag, ranks + p);
    hn::StoreU(larger1, tag, ranks + p + lanes);
  }
}

// As rank_keys(), for more keys than all against all is good for.
template <class K>
void rank_many_keys(const K* keys, std::size_t count, K* ranks) {
  PoolVector<K> sorted(keys, keys + count);
  std::sort(sorted.begin(), sorted.end(), std::greater<K>());
  for (std::size_t i = 0; i < count; ++i) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), keys[i], std::greater<K>());
    ranks[i] = static_cast<K>(place - sorted.begin());
  }
}

// Keeps k positions where more have a rank below k: `last` is shared by those that tie for the last places.
template <class K>
void break_ties(const K* ranks, std::size_t k, K last, K* positions) {
  std::size_t ties = k - last;
  for (std::size_t i = 0, kept = 0; kept < k; ++i) {
    const bool is_tie = ranks[i] == last && ties > 0;
    positions[kept] = positions[i];
    kept += ranks[i] < last || is_tie;
    ties -= is_tie;
  }
}

// Keeps the positions with a rank below k, at most k, of equal ranks the first. Returns how many.
template <class K>
std::size_t keep_top(const K* ranks, std::size_t count, std::size_t k, K* positions) {
  K below = 0;
  K last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    below += ranks[i] < k;
    last = std::max(last, ranks[i] < k ? ranks[i] : K{0});
  }
  if (below > k) {
    break_ties(ranks, k, last, positions);
    return k;
  }
  for (std::size_t i = 0, kept = 0; i < count; ++i) {
    positions[kept] = positions[i];
    kept += ranks[i] < k;
  }
  return below;
}

// The largest key of each of `columns` columns; values of a last row that is not full are left out.
template <class K>
void column_maxima(const K* keys, std::size_t count, std::size_t columns, K* maxima) {
  const Tag<K> tag;
  for (std::size_t column = 0; column < columns; column += hn::Lanes(tag)) {
    auto largest = hn::Zero(tag);
    for (std::size_t row = 0; row + columns <= count; row += columns) {
      largest = hn::Max(largest, hn::LoadU(tag, keys + row + column));
    }
    hn::StoreU(largest, tag, maxima + column);
  }
}

// The least of the keys whose rank is below k. REQUIRES: count is a multiple of kLanes.
template <class K>
K least_below(const K* keys, const K* ranks, std::size_t count, std::size_t k) {
  const Tag<K> tag;
  auto least = hn::Set(tag, std::numeric_limits<K>::max());
  for (std::size_t p = 0; p < count; p += hn::Lanes(tag)) {
    const auto is_below = hn::Gt(hn::Set(tag, static_cast<K>(k)), hn::LoadU(tag, ranks + p));
    least = hn::IfThenElse(is_below, hn::Min(least, hn::LoadU(tag, keys + p)), least);
  }
  return hn::GetLane(hn::MinOfLanes(tag, least));
}

// A key that at least k of `keys` reach, and not many more; 1 where finding one would not pay.
template <class V, class K>
K bound_of_kth(const K* keys, std::size_t count, std::size_t k, BucketScratch<V>& scratch) {
  const std::size_t columns = round_up(2 * k, kLanes);
  if (columns > kManyKeys || columns * 4 > count) return 1;
  K* const maxima = scratch.few_keys.data();
  column_maxima(keys, count, columns, maxima);
  rank_keys(maxima, columns, scratch.ranks.data());
  return std::max<K>(least_below(maxima, scratch.ranks.data(), columns, k), 1);
}

// Sets the bits of keys that reach the bound.
template <class K>
void mark_keys(const K* keys, std::size_t words_count, K bound, std::uint64_t* words) {
  const Tag<K> tag;
  const auto below = hn::Set(tag, static_cast<K>(bound - 1));
  for (std::size_t w = 0; w < words_count; ++w) {
    std::uint64_t word = 0;
    for (std::size_t p = 0; p < 64; p += hn::Lanes(tag)) {
      std::uint64_t bits = 0;
      const auto passes = hn::Gt(hn::LoadU(tag, keys + w * 64 + p), below);
      hn::StoreMaskBits(tag, passes, reinterpret_cast<std::uint8_t*>(&bits));
      word |= bits << p;
    }
    words[w] = word;
  }
}

template <class V>
std::size_t candidates(const V* values, std::size_t count, std::size_t k, Key end_key, BucketScratch<V>& scratch) {
  const std::size_t words = (count + 63) / 64;
  auto* const keys = scratch.keys.data();
  make_keys(values, count, end_key, keys);
  mark_keys(keys, words, bound_of_kth(keys, count, k, scratch), scratch.words.data());
  return emit_occupied(scratch.words.data(), words, keys, 0, {scratch.positions.data(), scratch.few_keys.data()});
}

template <class V>
std::size_t largest(std::size_t few, std::size_t k, BucketScratch<V>& scratch) {
  if (few <= k) return few;
  const auto rank = few <= kManyKeys ? rank_keys<BitsOf<V>> : rank_many_keys<BitsOf<V>>;
  rank(scratch.few_keys.data(), few, scratch.ranks.data());
  return keep_top(scratch.ranks.data(), few, k, scratch.positions.data());
}

#define TULLE_BUCKET(name, V)                                                                   \
  std::size_t candidates_##name(const V* values, std::size_t count, std::size_t k, Key end_key, \
                                BucketScratch<V>& scratch) {                                    \
    return candidates(values, count, k, end_key, scratch);                                      \
  }                                                                                             \
  std::size_t largest_##name(std::size_t few, std::size_t k, BucketScratch<V>& scratch) {       \
    return largest(few, k, scratch);                                                            \
  }
TULLE_FOR_EACH_COMPUTE_TYPE(TULLE_BUCKET)
#undef TULLE_BUCKET

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"

namespace tulle {

#define TULLE_BUCKET(name, V)                                                                                       \
  HWY_EXPORT(candidates_##name);                                                                                    \
  HWY_EXPORT(largest_##name);                                                                                       \
  template <>                                                                                                       \
  std::size_t bucket_candidates(std::span<const V> values, std::size_t k, Key end_key, BucketScratch<V>& scratch) { \
    apply_simd_environment();                                                                                       \
    return HWY_DYNAMIC_DISPATCH(candidates_##name)(values.data(), values.size(), k, end_key, scratch);              \
  }                                                                                                                 \
  template <>                                                                                                       \
  std::size_t keep_largest(std::size_t few, std::size_t k, BucketScratch<V>& scratch) {                             \
    apply_simd_environment();                                                                                       \
    return HWY_DYNAMIC_DISPATCH(largest_##name)(few, k, scratch);                                                   \
  }
TULLE_FOR_EACH_COMPUTE_TYPE(TULLE_BUCKET)
#undef TULLE_BUCKET

}  // namespace tulle
#endif  // HWY_ONCE
