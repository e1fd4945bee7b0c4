#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stream/half_arrays.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <cmath>
#include <limits>

#include "stream/half_arrays.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Below AVX2 Highway emulates the conversions, and does not round as Half does.
#if HWY_TARGET <= HWY_AVX2
constexpr bool kHasInstructions = true;
#else
constexpr bool kHasInstructions = false;
#endif

void widen_array(const Half* source, float* destination, std::size_t count) {
  std::size_t i = 0;
  if constexpr (kHasInstructions) {
    const hn::ScalableTag<float> wide;
    const hn::Rebind<hwy::float16_t, decltype(wide)> narrow;
    for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) {
      const auto halves = hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(source + i));
      hn::StoreU(hn::PromoteTo(wide, halves), wide, destination + i);
    }
  }
  for (; i < count; ++i) destination[i] = static_cast<float>(source[i]);
}

std::uint64_t narrow_array(const float* source, Half* destination, std::size_t count) {
  constexpr float kOverflows = 65520.0f;  // halfway between the largest half and the next that would be
  const float infinity = std::numeric_limits<float>::infinity();
  std::uint64_t overflowed = 0;
  std::size_t i = 0;
  if constexpr (kHasInstructions) {
    const hn::ScalableTag<float> wide;
    const hn::Rebind<hwy::float16_t, decltype(wide)> narrow;
    for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) {
      const auto value = hn::LoadU(wide, source + i);
      const auto magnitude = hn::Abs(value);
      const auto too_large =
          hn::And(hn::Ge(magnitude, hn::Set(wide, kOverflows)), hn::Lt(magnitude, hn::Set(wide, infinity)));
      overflowed += hn::CountTrue(wide, too_large);
      hn::StoreU(hn::DemoteTo(narrow, value), narrow, reinterpret_cast<hwy::float16_t*>(destination + i));
    }
  }
  for (; i < count; ++i) {
    const float magnitude = std::fabs(source[i]);
    overflowed += magnitude >= kOverflows && magnitude < infinity;
    destination[i] = Half(source[i]);
  }
  return overflowed;
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"

namespace tulle {

HWY_EXPORT(widen_array);
HWY_EXPORT(narrow_array);

void widen_halves(const Half* source, float* destination, std::size_t count) {
  apply_simd_environment();
  HWY_DYNAMIC_DISPATCH(widen_array)(source, destination, count);
}

std::uint64_t narrow_to_halves(const float* source, Half* destination, std::size_t count) {
  apply_simd_environment();
  return HWY_DYNAMIC_DISPATCH(narrow_array)(source, destination, count);
}

}  // namespace tulle
#endif  // HWY_ONCE
