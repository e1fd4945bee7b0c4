// Per word of 64 positions: a few set bits are written four at a time without asking how many there are; many, where
// the CPU has an instruction for it, by compressing whole vectors. Compiled per target for popcount and count-zeros
// too.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stream/emit.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Writes four pairs at a time; those beyond the last bit are overwritten by the next word's.
template <class V, class I>
void emit_few(std::uint64_t word, std::size_t count, const V* values, I begin, I* out_indices, V* out_values) {
  constexpr std::uint64_t kNeverZero = std::uint64_t{1} << 63;  // counting zeros of zero is not defined
  for (std::size_t done = 0; done < count; done += 4) {
    for (std::size_t n = done; n < done + 4; ++n) {
      const auto position = static_cast<I>(__builtin_ctzll(word | kNeverZero));
      out_indices[n] = begin + position;
      out_values[n] = values[position];
      word &= word - 1;
    }
  }
}

#if HWY_TARGET <= HWY_AVX3
template <class V, class I>
void emit_many(const std::uint8_t* occupied, const V* values, I begin, I* out_indices, V* out_values) {
  const hn::ScalableTag<I> index_tag;
  const hn::ScalableTag<V> value_tag;
  constexpr std::size_t kVector = hn::MaxLanes(index_tag);
  auto indices = hn::Iota(index_tag, begin);
  for (std::size_t p = 0; p < 64; p += kVector) {
    const auto set = hn::LoadMaskBits(index_tag, occupied + p / 8);
    hn::StoreU(hn::Compress(indices, set), index_tag, out_indices);
    hn::StoreU(hn::Compress(hn::LoadU(value_tag, values + p), hn::RebindMask(value_tag, set)), value_tag, out_values);
    const std::size_t count = hn::CountTrue(index_tag, set);
    out_indices += count;
    out_values += count;
    indices = hn::Add(indices, hn::Set(index_tag, static_cast<I>(kVector)));
  }
}
#endif

template <class V, class I>
std::size_t emit_words(const std::uint64_t* occupied, std::size_t words, const V* values, std::uint64_t begin,
                       I* out_indices, V* out_values) {
  std::size_t written = 0;
  for (std::size_t w = 0; w < words; ++w, values += 64, begin += 64) {
    const std::uint64_t word = occupied[w];
    if (word == 0) continue;
    const auto count = static_cast<std::size_t>(__builtin_popcountll(word));
#if HWY_TARGET <= HWY_AVX3
    if constexpr (sizeof(V) == sizeof(I)) {
      if (count > 10) {
        emit_many(reinterpret_cast<const std::uint8_t*>(occupied + w), values, static_cast<I>(begin),
                  out_indices + written, out_values + written);
        written += count;
        continue;
      }
    }
#endif
    emit_few(word, count, values, static_cast<I>(begin), out_indices + written, out_values + written);
    written += count;
  }
  return written;
}

#define TULLE_EMIT(name, V, I)                                                                             \
  std::size_t name(const std::uint64_t* occupied, std::size_t words, const V* values, std::uint64_t begin, \
                   I* out_indices, V* out_values) {                                                        \
    return emit_words(occupied, words, values, begin, out_indices, out_values);                            \
  }
TULLE_EMIT(emit_v32_i32, std::uint32_t, std::uint32_t)
TULLE_EMIT(emit_v32_i64, std::uint32_t, std::uint64_t)
TULLE_EMIT(emit_v64_i32, std::uint64_t, std::uint32_t)
TULLE_EMIT(emit_v64_i64, std::uint64_t, std::uint64_t)
#undef TULLE_EMIT

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"
#include "stream/emit.hpp"

namespace tulle {

HWY_EXPORT(emit_v32_i32);
HWY_EXPORT(emit_v32_i64);
HWY_EXPORT(emit_v64_i32);
HWY_EXPORT(emit_v64_i64);

#define TULLE_EMIT(name, V, I)                                                                                      \
  std::size_t emit_occupied(const std::uint64_t* occupied, std::size_t words, const V* values, std::uint64_t begin, \
                            PairsTarget<V, I> target) {                                                             \
    apply_simd_environment();                                                                                       \
    return HWY_DYNAMIC_DISPATCH(name)(occupied, words, values, begin, target.indices, target.values);               \
  }
TULLE_EMIT(emit_v32_i32, std::uint32_t, std::uint32_t)
TULLE_EMIT(emit_v32_i64, std::uint32_t, std::uint64_t)
TULLE_EMIT(emit_v64_i32, std::uint64_t, std::uint32_t)
TULLE_EMIT(emit_v64_i64, std::uint64_t, std::uint64_t)
#undef TULLE_EMIT

}  // namespace tulle
#endif  // HWY_ONCE
