#include "select/mark.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/mark.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys of floats have no sign bit, so signed comparison, which every CPU has, orders them.
template <Side kSide, class V>
struct FloatMarker {
  using T = std::make_signed_t<BitsOf<V>>;
  static constexpr hn::ScalableTag<T> kTag{};

  explicit FloatMarker(Key low) : below_(static_cast<T>(low - 1)) {}
  HWY_INLINE auto operator()(const V* values) const {
    const auto bits = hn::LoadU(kTag, reinterpret_cast<const T*>(values));
    const auto magnitude = hn::And(bits, hn::Set(kTag, std::numeric_limits<T>::max()));
    if constexpr (kSide == Side::both) return hn::Gt(magnitude, hn::Set(kTag, below_));
    const auto is_non_finite = hn::Gt(magnitude, hn::Set(kTag, static_cast<T>(kFirstNonFinite<V> - 1)));
    const auto sided = kSide == Side::positive ? bits : hn::Xor(bits, hn::Set(kTag, std::numeric_limits<T>::min()));
    return hn::Or(hn::Gt(sided, hn::Set(kTag, below_)), is_non_finite);
  }

  T below_;
};

template <Side kSide, class V>
struct IntegerMarker {
  using T = BitsOf<V>;
  static constexpr hn::ScalableTag<T> kTag{};

  explicit IntegerMarker(Key low) : below_(static_cast<T>(low - 1)) {}
  HWY_INLINE auto operator()(const V* values) const {
    const hn::ScalableTag<V> signed_tag;
    const auto value = hn::LoadU(signed_tag, values);
    const auto is_negative = hn::Lt(value, hn::Zero(signed_tag));
    const auto magnitude = hn::IfThenElse(is_negative, hn::Neg(value), value);
    const auto sided = kSide == Side::both       ? magnitude
                       : kSide == Side::positive ? hn::IfThenZeroElse(is_negative, magnitude)
                                                 : hn::IfThenElseZero(is_negative, magnitude);
    return hn::Gt(hn::BitCast(kTag, sided), hn::Set(kTag, below_));
  }

  T below_;
};

template <class Marker, class V>
void mark_words(const V* values, std::size_t count, Marker marker, std::uint64_t* words) {
  const std::size_t lanes = hn::Lanes(Marker::kTag);
  for (std::size_t i = 0; i < count; i += 64) {
    std::uint64_t word = 0;
    for (std::size_t p = 0; p < 64; p += lanes) {
      std::uint64_t bits = 0;
      hn::StoreMaskBits(Marker::kTag, marker(values + i + p), reinterpret_cast<std::uint8_t*>(&bits));
      word |= bits << p;
    }
    words[i / 64] = word;
  }
}

template <template <Side, class> class Marker, class V>
void mark_side(const V* values, std::size_t count, Side side, Key low, std::uint64_t* words) {
  switch (side) {
    case Side::both: return mark_words(values, count, Marker<Side::both, V>(low), words);
    case Side::positive: return mark_words(values, count, Marker<Side::positive, V>(low), words);
    case Side::negative: return mark_words(values, count, Marker<Side::negative, V>(low), words);
  }
}

#define TULLE_MARK(name, V, Marker)                                                         \
  void name(const V* values, std::size_t count, Side side, Key low, std::uint64_t* words) { \
    mark_side<Marker>(values, count, side, low, words);                                     \
  }
TULLE_MARK(mark_f32, float, FloatMarker)
TULLE_MARK(mark_f64, double, FloatMarker)
TULLE_MARK(mark_i32, std::int32_t, IntegerMarker)
TULLE_MARK(mark_i64, std::int64_t, IntegerMarker)
#undef TULLE_MARK

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/simd.hpp"

namespace tulle {

HWY_EXPORT(mark_f32);
HWY_EXPORT(mark_f64);
HWY_EXPORT(mark_i32);
HWY_EXPORT(mark_i64);

// A key that V cannot have marks nothing.
#define TULLE_MARK(name, V)                                                                 \
  void mark(const V* values, std::size_t count, Side side, Key low, std::uint64_t* words) { \
    apply_simd_environment();                                                               \
    if (low > kLargestKey<V>) return void(std::fill_n(words, count / 64, 0));               \
    HWY_DYNAMIC_DISPATCH(name)(values, count, side, low, words);                            \
  }
TULLE_MARK(mark_f32, float)
TULLE_MARK(mark_f64, double)
TULLE_MARK(mark_i32, std::int32_t)
TULLE_MARK(mark_i64, std::int64_t)
#undef TULLE_MARK

}  // namespace tulle
#endif  // HWY_ONCE
