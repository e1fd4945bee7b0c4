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

// The keys, vector by vector. Those that do not fill one are kept beside zeros: a masked load is no way to read them,
// because where the target has none it reads a whole vector, past the last key.
template <class K>
class Keys {
 public:
  HWY_INLINE Keys(const K* keys, std::size_t count) : keys_(keys), whole_(count - count % hn::Lanes(Tag<K>())) {
    hn::Store(hn::Zero(Tag<K>()), Tag<K>(), last_);
    for (std::size_t i = whole_; i < count; ++i) last_[i - whole_] = keys[i];
  }

  template <class Function>
  HWY_INLINE void for_each_vector(Function&& function) const {
    const Tag<K> tag;
    for (std::size_t i = 0; i < whole_; i += hn::Lanes(tag)) function(hn::LoadU(tag, keys_ + i));
    function(hn::Load(tag, last_));
  }

 private:
  const K* keys_;
  std::size_t whole_;
  HWY_ALIGN K last_[HWY_MAX_BYTES / sizeof(K)];
};

// REQUIRES: bound >= 1.
template <class K>
HWY_INLINE std::size_t count_from(const Keys<K>& keys, K bound) {
  const Tag<K> tag;
  const auto below = hn::Set(tag, static_cast<K>(bound - 1));
  std::size_t reached = 0;
  keys.for_each_vector([&](auto key) HWY_ATTR { reached += hn::CountTrue(tag, hn::Gt(key, below)); });
  return reached;
}

// REQUIRES: bound >= 1, and a key reaches it.
template <class K>
HWY_INLINE K least_from(const Keys<K>& keys, K bound) {
  const Tag<K> tag;
  const auto below = hn::Set(tag, static_cast<K>(bound - 1));
  auto least = hn::Set(tag, std::numeric_limits<K>::max());
  keys.for_each_vector([&](auto key)
                           HWY_ATTR { least = hn::IfThenElse(hn::Gt(key, below), hn::Min(least, key), least); });
  return hn::GetLane(hn::MinOfLanes(tag, least));
}

template <class K>
HWY_INLINE K largest_of(const Keys<K>& keys) {
  const Tag<K> tag;
  auto largest = hn::Zero(tag);
  keys.for_each_vector([&](auto key) HWY_ATTR { largest = hn::Max(largest, key); });
  return hn::GetLane(hn::MaxOfLanes(tag, largest));
}

// At least k keys reach `low`, and fewer what is above `high`. Which half is left is a coin toss, so there is no
// branch.
template <class K>
HWY_INLINE K kth(const K* first, std::size_t count, K k) {
  const Keys<K> keys(first, count);
  K high = largest_of(keys);
  if (count_from(keys, K{1}) < k) return 0;
  K low = least_from(keys, K{1});
  while (low < high) {
    const K middle = static_cast<K>(high - (high - low) / 2);
    const std::size_t reached = count_from(keys, middle);
    if (reached == k) return least_from(keys, middle);
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
