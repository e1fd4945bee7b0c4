// How it works. The k-th largest is the largest bound that at least k keys reach. Bounds between the smallest and the
// largest key are tried by halving; a try counts, without a branch, how many keys reach the bound. Where just k do,
// the least of those is the answer, which ends most searches after about log2 of the number of keys.
#include "select/kth_of_few.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/kth_of_few.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <limits>

#include "stream/select.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class K>
using Tag = hn::ScalableTag<K>;

// Calls function(vector) for all keys. Where the last do not fill a vector there are zeros beside them.
template <class K, class Function>
HWY_INLINE void for_each_vector(const K* keys, std::size_t count, Function&& function) {
  const Tag<K> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) function(hn::LoadU(tag, keys + i));
  if (i < count) function(hn::MaskedLoad(hn::FirstN(tag, count - i), tag, keys + i));
}

// REQUIRES: bound >= 1.
template <class K>
HWY_INLINE std::size_t count_from(const K* keys, std::size_t count, K bound) {
  const Tag<K> tag;
  const auto below = hn::Set(tag, static_cast<K>(bound - 1));
  std::size_t reached = 0;
  for_each_vector(keys, count, [&](auto key) HWY_ATTR { reached += hn::CountTrue(tag, hn::Gt(key, below)); });
  return reached;
}

// REQUIRES: bound >= 1, and a key reaches it.
template <class K>
HWY_INLINE K least_from(const K* keys, std::size_t count, K bound) {
  const Tag<K> tag;
  const auto below = hn::Set(tag, static_cast<K>(bound - 1));
  auto least = hn::Set(tag, std::numeric_limits<K>::max());
  for_each_vector(keys, count,
                  [&](auto key) HWY_ATTR { least = hn::IfThenElse(hn::Gt(key, below), hn::Min(least, key), least); });
  return hn::GetLane(hn::MinOfLanes(tag, least));
}

template <class K>
HWY_INLINE K largest_of(const K* keys, std::size_t count) {
  const Tag<K> tag;
  auto largest = hn::Zero(tag);
  for_each_vector(keys, count, [&](auto key) HWY_ATTR { largest = hn::Max(largest, key); });
  return hn::GetLane(hn::MaxOfLanes(tag, largest));
}

// At least k keys reach `low`, and fewer what is above `high`. Which half is left is a coin toss, so there is no
// branch.
template <class K>
HWY_INLINE K kth(const K* keys, std::size_t count, K k) {
  K high = largest_of(keys, count);
  if (count_from(keys, count, K{1}) < k) return 0;
  K low = least_from(keys, count, K{1});
  while (low < high) {
    const K middle = static_cast<K>(high - (high - low) / 2);
    const std::size_t reached = count_from(keys, count, middle);
    if (reached == k) return least_from(keys, count, middle);
    const std::size_t upper = mask_of(reached > k);
    low = select(upper, middle, low);
    high = select(upper, high, static_cast<K>(middle - 1));
  }
  return low;
}

std::uint32_t kth_u32(const std::uint32_t* keys, std::size_t count, std::uint32_t k) { return kth(keys, count, k); }
std::uint64_t kth_u64(const std::uint64_t* keys, std::size_t count, std::uint64_t k) { return kth(keys, count, k); }

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"

namespace tulle {

HWY_EXPORT(kth_u32);
HWY_EXPORT(kth_u64);

std::uint32_t kth_of_few(std::span<const std::uint32_t> keys, std::uint64_t k) {
  apply_simd_environment();
  return HWY_DYNAMIC_DISPATCH(kth_u32)(keys.data(), keys.size(), static_cast<std::uint32_t>(k));
}

std::uint64_t kth_of_few(std::span<const std::uint64_t> keys, std::uint64_t k) {
  apply_simd_environment();
  return HWY_DYNAMIC_DISPATCH(kth_u64)(keys.data(), keys.size(), k);
}

}  // namespace tulle
#endif  // HWY_ONCE
