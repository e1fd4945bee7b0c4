// Dense + dense. Sums go through Highway; the other operations are loops that the compiler vectorizes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stream/combine_dense.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads both vectors of a step before it writes either, so that `result` may be an operand.
template <class T>
void add_arrays(T* result, const T* lower, const T* higher, std::size_t count) {
  const hn::ScalableTag<T> tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = hn::Add(hn::LoadU(tag, lower + i), hn::LoadU(tag, higher + i));
    const auto second = hn::Add(hn::LoadU(tag, lower + i + lanes), hn::LoadU(tag, higher + i + lanes));
    hn::StoreU(first, tag, result + i);
    hn::StoreU(second, tag, result + i + lanes);
  }
  for (; i < count; ++i) result[i] = lower[i] + higher[i];
}

void add_f32(float* r, const float* a, const float* b, std::size_t n) { add_arrays(r, a, b, n); }
void add_f64(double* r, const double* a, const double* b, std::size_t n) { add_arrays(r, a, b, n); }
void add_u32(std::uint32_t* r, const std::uint32_t* a, const std::uint32_t* b, std::size_t n) {
  add_arrays(r, a, b, n);
}
void add_u64(std::uint64_t* r, const std::uint64_t* a, const std::uint64_t* b, std::size_t n) {
  add_arrays(r, a, b, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"
#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"

namespace tulle {
namespace {

HWY_EXPORT(add_f32);
HWY_EXPORT(add_f64);
HWY_EXPORT(add_u32);
HWY_EXPORT(add_u64);

template <class T>
void add(std::byte* result, const std::byte* lower, const std::byte* higher, std::uint64_t count,
         void (*kernel)(T*, const T*, const T*, std::size_t)) {
  kernel(reinterpret_cast<T*>(result), reinterpret_cast<const T*>(lower), reinterpret_cast<const T*>(higher), count);
}

// Integers are added as unsigned ones: overflow wraps.
void add_dense(ValueType type, std::byte* result, const std::byte* lower, const std::byte* higher,
               std::uint64_t count) {
  apply_simd_environment();
  switch (type) {
    case ValueType::f32: return add(result, lower, higher, count, HWY_DYNAMIC_DISPATCH(add_f32));
    case ValueType::f64: return add(result, lower, higher, count, HWY_DYNAMIC_DISPATCH(add_f64));
    case ValueType::i32: return add(result, lower, higher, count, HWY_DYNAMIC_DISPATCH(add_u32));
    default: return add(result, lower, higher, count, HWY_DYNAMIC_DISPATCH(add_u64));
  }
}

template <class V, class Combine>
void combine_arrays(V* result, const V* lower, const V* higher, std::size_t count, Combine combine) {
  for (std::size_t i = 0; i < count; ++i) result[i] = combine(lower[i], higher[i]);
}

}  // namespace

void combine_dense(ValueType type, const Op& op, std::byte* result, const std::byte* lower, const std::byte* higher,
                   std::uint64_t count) {
  if (op.user_op() != nullptr) return op.user_op()->combine(result, lower, higher, count);
  if (op.code() == OpCode::sum) return add_dense(type, result, lower, higher, count);
  visit_compute_type(type, [&]<class V>() {
    visit_op<V>(op, [&](auto combine) {
      combine_arrays(reinterpret_cast<V*>(result), reinterpret_cast<const V*>(lower),
                     reinterpret_cast<const V*>(higher), count, combine);
    });
  });
}

}  // namespace tulle
#endif  // HWY_ONCE
