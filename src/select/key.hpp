// Keys: unsigned integers in the order of magnitudes, so that selecting is comparing integers.
//
// The key of a float is its bits without the sign: the order of IEEE 754 bits is that of the magnitudes, denormals
// included, and infinity and NaN come last. The key of an integer is its absolute value. Only zeros have key 0.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

#include "stream/select.hpp"
#include "tulle/base/value_type.hpp"

namespace tulle {

/// A key of any compute type.
using Key = std::uint64_t;

/// Which values have a key. The others count as zeros, except that NaN and infinity always keep theirs, so that no pass
/// overlooks them.
enum class Side { both, positive, negative };

template <class V>
inline constexpr bool kIsFloat = std::is_floating_point_v<V>;

/// Keys from here on are infinity and NaN. For integers, no key.
template <class V>
inline constexpr Key kFirstNonFinite = std::numeric_limits<Key>::max();
template <>
inline constexpr Key kFirstNonFinite<float> = 0x7f800000u;
template <>
inline constexpr Key kFirstNonFinite<double> = 0x7ff0000000000000u;

/// No value has a larger key.
template <class V>
inline constexpr Key kLargestKey = std::numeric_limits<BitsOf<V>>::max() >> (kIsFloat<V> ? 1 : 0);

template <class V>
BitsOf<V> magnitude_key(V value) {
  using Bits = BitsOf<V>;
  if constexpr (kIsFloat<V>) {
    return std::bit_cast<Bits>(value) & (~Bits{0} >> 1);
  } else {
    return value < 0 ? Bits{0} - static_cast<Bits>(value) : static_cast<Bits>(value);
  }
}

template <class V>
BitsOf<V> key_of(V value, Side side) {
  const BitsOf<V> magnitude = magnitude_key(value);
  if (side == Side::both || magnitude >= kFirstNonFinite<V>) return magnitude;
  return (std::bit_cast<std::make_signed_t<BitsOf<V>>>(value) < 0) == (side == Side::negative) ? magnitude : 0;
}

/// The magnitude whose key this is; rounded down where f64 has too few digits, so that the value still reaches it.
template <class V>
double magnitude_of(Key key) {
  if constexpr (kIsFloat<V>) {
    return static_cast<double>(std::bit_cast<V>(static_cast<BitsOf<V>>(key)));
  } else {
    const auto rounded = static_cast<double>(key);
    return static_cast<unsigned __int128>(rounded) > key ? std::nextafter(rounded, 0.0) : rounded;
  }
}

/// The smallest key whose magnitude is not below `threshold`. REQUIRES: threshold is not NaN.
template <class V>
Key key_at_least(double threshold) {
  if (!(threshold > 0)) return 0;
  if constexpr (kIsFloat<V>) {
    auto rounded = static_cast<V>(threshold);
    if (rounded < threshold) rounded = std::nextafter(rounded, std::numeric_limits<V>::infinity());
    return magnitude_key(rounded);
  } else {
    return threshold < 0x1p64 ? static_cast<Key>(std::ceil(threshold)) : std::numeric_limits<Key>::max();
  }
}

// The same by a type that is known at run time; 16-bit ones have the keys of f32.
inline double magnitude_of(ValueType type, Key key) {
  return visit_compute_type(compute_type(type), [&]<class V>() { return magnitude_of<V>(key); });
}
inline Key key_at_least(ValueType type, double threshold) {
  return visit_compute_type(compute_type(type), [&]<class V>() { return key_at_least<V>(threshold); });
}
inline Key first_non_finite(ValueType type) {
  return visit_compute_type(compute_type(type), []<class V>() { return kFirstNonFinite<V>; });
}

}  // namespace tulle
