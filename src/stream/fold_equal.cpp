// Sums of neighbours with equal indices. A vector of pairs is compared with the vectors one place before and after it:
// who equals his right neighbour adds its value, who equals his left neighbour goes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stream/fold_equal.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V, class I>
std::size_t fold_scalar(const I* indices, const V* values, std::size_t size, I* out_indices, V* out_values) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < size; ++i) {
    out_indices[written] = indices[i];
    out_values[written] = indices[i] == indices[i + 1] ? values[i] + values[i + 1] : values[i];
    written += indices[i] != indices[i - 1];
  }
  return written;
}

template <class V, class I>
std::size_t fold_array(const I* indices, const V* values, std::size_t size, I* out_indices, V* out_values) {
  const hn::ScalableTag<I> index_tag;
  const hn::ScalableTag<V> value_tag;
  const std::size_t lanes = hn::Lanes(index_tag);
  std::size_t written = 0;
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto index = hn::LoadU(index_tag, indices + i);
    const auto has_twin = hn::RebindMask(value_tag, hn::Eq(index, hn::LoadU(index_tag, indices + i + 1)));
    const auto stays = hn::Ne(index, hn::LoadU(index_tag, indices + i - 1));
    const auto value = hn::LoadU(value_tag, values + i);
    const auto folded = hn::IfThenElse(has_twin, hn::Add(value, hn::LoadU(value_tag, values + i + 1)), value);
#if HWY_TARGET <= HWY_AVX3
    // In registers: compressing into memory is microcode on some CPUs.
    hn::StoreU(hn::Compress(index, stays), index_tag, out_indices + written);
    hn::StoreU(hn::Compress(folded, hn::RebindMask(value_tag, stays)), value_tag, out_values + written);
    written += hn::CountTrue(index_tag, stays);
#else
    // Without an instruction for it, compressing takes longer than the branch on twins, which are rare in sparse data.
    if (hn::AllTrue(index_tag, stays)) {
      hn::StoreU(index, index_tag, out_indices + written);
      hn::StoreU(folded, value_tag, out_values + written);
      written += lanes;
    } else {
      written += fold_scalar(indices + i, values + i, lanes, out_indices + written, out_values + written);
    }
#endif
  }
  return written + fold_scalar(indices + i, values + i, size - i, out_indices + written, out_values + written);
}

std::size_t fold_f32(const std::uint32_t* i, const float* v, std::size_t n, std::uint32_t* oi, float* ov) {
  return fold_array(i, v, n, oi, ov);
}
std::size_t fold_f64(const std::uint64_t* i, const double* v, std::size_t n, std::uint64_t* oi, double* ov) {
  return fold_array(i, v, n, oi, ov);
}
std::size_t fold_u32(const std::uint32_t* i, const std::uint32_t* v, std::size_t n, std::uint32_t* oi,
                     std::uint32_t* ov) {
  return fold_array(i, v, n, oi, ov);
}
std::size_t fold_u64(const std::uint64_t* i, const std::uint64_t* v, std::size_t n, std::uint64_t* oi,
                     std::uint64_t* ov) {
  return fold_array(i, v, n, oi, ov);
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"
#include "stream/fold_equal.hpp"

namespace tulle {

HWY_EXPORT(fold_f32);
HWY_EXPORT(fold_f64);
HWY_EXPORT(fold_u32);
HWY_EXPORT(fold_u64);

#define TULLE_FOLD_SUM(kernel, V, I)                                                                                \
  std::size_t fold_sum(PairsView<V, I> sorted, PairsTarget<V, I> target) {                                          \
    apply_simd_environment();                                                                                       \
    return HWY_DYNAMIC_DISPATCH(kernel)(sorted.indices, sorted.values, sorted.size, target.indices, target.values); \
  }
TULLE_FOLD_SUM(fold_f32, float, std::uint32_t)
TULLE_FOLD_SUM(fold_f64, double, std::uint64_t)
TULLE_FOLD_SUM(fold_u32, std::uint32_t, std::uint32_t)
TULLE_FOLD_SUM(fold_u64, std::uint64_t, std::uint64_t)
#undef TULLE_FOLD_SUM

}  // namespace tulle
#endif  // HWY_ONCE
