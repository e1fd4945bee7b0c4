#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/float_kernels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kParts = 16;  // of an interleaved sum: the values i, i + 16, i + 32, ...

using Doubles = hn::ScalableTag<double>;
using NarrowFloats = hn::Rebind<float, Doubles>;
constexpr std::size_t kVectors = kParts / hn::MaxLanes(Doubles());

// Calls function(a, vector) with the a-th vector of each sixteen values, as f64. Missing values are zero.
template <class Function>
HWY_INLINE void for_each_vector(const float* values, std::size_t count, Function&& function) {
  const Doubles wide;
  const NarrowFloats narrow;
  std::size_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::size_t a = 0; a < kVectors; ++a) {
      function(a, hn::PromoteTo(wide, hn::LoadU(narrow, values + i + a * hn::Lanes(wide))));
    }
  }
  if (i == count) return;
  float rest[kParts] = {};
  std::memcpy(rest, values + i, (count - i) * sizeof(float));
  for (std::size_t a = 0; a < kVectors; ++a) {
    function(a, hn::PromoteTo(wide, hn::LoadU(narrow, rest + a * hn::Lanes(wide))));
  }
}

using Sums = hn::Vec<Doubles>[kVectors];

HWY_INLINE void clear(Sums& sums) {
  for (auto& sum : sums) sum = hn::Zero(Doubles());
}

HWY_INLINE double total(const Sums& sums) {
  const Doubles wide;
  double parts[kParts];
  for (std::size_t a = 0; a < kVectors; ++a) hn::StoreU(sums[a], wide, parts + a * hn::Lanes(wide));
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

double sum_of_squares(const float* values, std::size_t count) {
  Sums sums;
  clear(sums);
  for_each_vector(values, count, [&](std::size_t a, auto x) HWY_ATTR { sums[a] = hn::MulAdd(x, x, sums[a]); });
  return total(sums);
}

void add_by_sign(const float* values, std::size_t count, double* negative, double* positive) {
  const auto zero = hn::Zero(Doubles());
  Sums below, above;
  clear(below);
  clear(above);
  for_each_vector(values, count, [&](std::size_t a, auto x) HWY_ATTR {
    below[a] = hn::Add(below[a], hn::Min(x, zero));
    above[a] = hn::Add(above[a], hn::Max(x, zero));
  });
  *negative = total(below);
  *positive = total(above);
}

// Magnitudes compare as integers, with infinity and NaN above all others.
std::int32_t largest_magnitude(const std::int32_t* bits, std::size_t count) {
  const hn::ScalableTag<std::int32_t> tag;
  const std::size_t lanes = hn::Lanes(tag);
  const auto mask = hn::Set(tag, 0x7fffffff);
  auto first = hn::Zero(tag), second = hn::Zero(tag);
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    first = hn::Max(first, hn::And(hn::LoadU(tag, bits + i), mask));
    second = hn::Max(second, hn::And(hn::LoadU(tag, bits + i + lanes), mask));
  }
  std::int32_t largest = hn::GetLane(hn::MaxOfLanes(tag, hn::Max(first, second)));
  for (; i < count; ++i) largest = std::max(largest, bits[i] & 0x7fffffff);
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <limits>

#include "base/simd.hpp"
#include "codec/float_kernels.hpp"

namespace tulle {

HWY_EXPORT(sum_of_squares);
HWY_EXPORT(add_by_sign);
HWY_EXPORT(largest_magnitude);

float scale_of(ScaleNorm norm, std::span<const float> values) {
  apply_simd_environment();
  if (norm == ScaleNorm::max) {
    const auto* const bits = reinterpret_cast<const std::int32_t*>(values.data());
    return std::bit_cast<float>(HWY_DYNAMIC_DISPATCH(largest_magnitude)(bits, values.size()));
  }
  const double length = std::sqrt(HWY_DYNAMIC_DISPATCH(sum_of_squares)(values.data(), values.size()));
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::isfinite(length) ? std::min(length, kLargest) : length);
}

SumsBySign sums_by_sign(std::span<const float> values) {
  apply_simd_environment();
  SumsBySign sums;
  HWY_DYNAMIC_DISPATCH(add_by_sign)(values.data(), values.size(), &sums.negative, &sums.positive);
  return sums;
}

}  // namespace tulle
#endif  // HWY_ONCE
