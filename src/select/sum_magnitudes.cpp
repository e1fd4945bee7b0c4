#include "select/sum_magnitudes.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/sum_magnitudes.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 64 sums side by side whatever the width of a vector: the order of additions is the same everywhere, and enough of
// them are independent to hide an addition's latency.
constexpr std::size_t kSums = 64;

// What a value adds. NaN is neither positive nor negative.
template <Side side, class Vector>
Vector magnitude(Vector value) {
  const auto zero = hn::Zero(hn::DFromV<Vector>());
  if constexpr (side == Side::positive) return hn::IfThenElseZero(hn::Gt(value, zero), value);
  if constexpr (side == Side::negative) return hn::IfThenElseZero(hn::Lt(value, zero), hn::Neg(value));
  return hn::Abs(value);
}

template <Side side, class V>
void add_side(const V* values, std::size_t count, V* sums) {
  const hn::CappedTag<V, kSums / 4> tag;
  const std::size_t lanes = hn::Lanes(tag);
  for (std::size_t p = 0; p < kSums; p += 4 * lanes) {
    auto sum0 = hn::LoadU(tag, sums + p);
    auto sum1 = hn::LoadU(tag, sums + p + lanes);
    auto sum2 = hn::LoadU(tag, sums + p + 2 * lanes);
    auto sum3 = hn::LoadU(tag, sums + p + 3 * lanes);
    for (std::size_t i = p; i < count; i += kSums) {
      sum0 = hn::Add(sum0, magnitude<side>(hn::LoadU(tag, values + i)));
      sum1 = hn::Add(sum1, magnitude<side>(hn::LoadU(tag, values + i + lanes)));
      sum2 = hn::Add(sum2, magnitude<side>(hn::LoadU(tag, values + i + 2 * lanes)));
      sum3 = hn::Add(sum3, magnitude<side>(hn::LoadU(tag, values + i + 3 * lanes)));
    }
    hn::StoreU(sum0, tag, sums + p);
    hn::StoreU(sum1, tag, sums + p + lanes);
    hn::StoreU(sum2, tag, sums + p + 2 * lanes);
    hn::StoreU(sum3, tag, sums + p + 3 * lanes);
  }
}

template <class V>
void add_magnitudes(const V* values, std::size_t count, Side side, V* sums) {
  switch (side) {
    case Side::both: return add_side<Side::both>(values, count, sums);
    case Side::positive: return add_side<Side::positive>(values, count, sums);
    case Side::negative: return add_side<Side::negative>(values, count, sums);
  }
}

void add_magnitudes_f32(const float* values, std::size_t count, Side side, float* sums) {
  add_magnitudes(values, count, side, sums);
}
void add_magnitudes_f64(const double* values, std::size_t count, Side side, double* sums) {
  add_magnitudes(values, count, side, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <array>
#include <cmath>
#include <numeric>

#include "base/simd.hpp"
#include "select/key.hpp"
#include "select/survivors.hpp"
#include "select/tile_reader.hpp"

namespace tulle {

HWY_EXPORT(add_magnitudes_f32);
HWY_EXPORT(add_magnitudes_f64);

namespace {

constexpr std::size_t kSums = 64;

// Short enough for sums in V to be close, long enough for adding them up in f64 not to show.
constexpr std::size_t kTile = 8192;

// As the kernel has it.
template <class V>
V magnitude(V value, Side side) {
  if (side == Side::both) return std::abs(value);
  const V facing = side == Side::positive ? value : -value;
  return facing > 0 ? facing : 0;
}

template <class V, class Kernel>
double sum_floats(const V* values, std::size_t count, Side side, Kernel add_magnitudes) {
  double total = 0;
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t length = std::min(kTile, count - first);
    std::array<V, kSums> sums{};
    add_magnitudes(values + first, length / kSums * kSums, side, sums.data());
    for (std::size_t i = length / kSums * kSums; i < length; ++i) sums[i % kSums] += magnitude(values[first + i], side);
    total = std::accumulate(sums.begin(), sums.end(), total);
  }
  return total;
}

template <class V>
double sum_integers(const V* values, std::size_t count, Side side) {
  return std::accumulate(values, values + count, 0.0,
                         [side](double sum, V value) { return sum + static_cast<double>(key_of(value, side)); });
}

template <class V>
double sum_part(const DenseInput& input, Range part, Side side) {
  TileReader<V> reader(input, kTile);
  double sum = 0;
  for (std::uint64_t first = part.begin; first < part.end; first += kTile) {
    const std::size_t count = std::min<std::uint64_t>(kTile, part.end - first);
    sum += sum_magnitudes(reader.read(first, count), count, side);
  }
  return sum;
}

}  // namespace

double sum_magnitudes(const float* values, std::size_t count, Side side) {
  apply_simd_environment();
  return sum_floats(values, count, side, HWY_DYNAMIC_DISPATCH(add_magnitudes_f32));
}
double sum_magnitudes(const double* values, std::size_t count, Side side) {
  apply_simd_environment();
  return sum_floats(values, count, side, HWY_DYNAMIC_DISPATCH(add_magnitudes_f64));
}
double sum_magnitudes(const std::int32_t* values, std::size_t count, Side side) {
  return sum_integers(values, count, side);
}
double sum_magnitudes(const std::int64_t* values, std::size_t count, Side side) {
  return sum_integers(values, count, side);
}

double mean_magnitude(const DenseInput& input, Side side) {
  const std::uint64_t count = input.range.size();
  if (count == 0) return 0;
  PoolVector<double> sums((count + kPart - 1) / kPart);
  parallel_for(input.threads, sums.size(), [&](std::size_t p) {
    const Range part{p * kPart, std::min((p + 1) * kPart, count)};
    sums[p] = visit_compute_type(compute_type(input.type), [&]<class V>() { return sum_part<V>(input, part, side); });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(count);
}

}  // namespace tulle
#endif  // HWY_ONCE
