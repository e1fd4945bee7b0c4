// Every 16-bit pattern, and every boundary between two of them, against a reference that uses exact f64 arithmetic.
#include "tulle/base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace tulle {
namespace {

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

/// A binary float of `exponent_bits` and `mantissa_bits` by its definition.
double decoded(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int kExponentBits = 5;
  static constexpr int kMantissaBits = 10;
};
template <>
struct Format<Bfloat16> {
  static constexpr int kExponentBits = 8;
  static constexpr int kMantissaBits = 7;
};

template <class T>
double reference(std::uint32_t bits) {
  return decoded(bits, Format<T>::kExponentBits, Format<T>::kMantissaBits);
}
template <class T>
constexpr std::uint32_t kInfinity = ((1u << Format<T>::kExponentBits) - 1) << Format<T>::kMantissaBits;

template <class T>
class SixteenBitFloat : public ::testing::Test {};
using Types = ::testing::Types<Half, Bfloat16>;
TYPED_TEST_SUITE(SixteenBitFloat, Types);

TYPED_TEST(SixteenBitFloat, WidensEveryPatternExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto widened = static_cast<float>(from_bits<TypeParam>(bits));
    const double expected = reference<TypeParam>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(widened), expected) << bits;
      ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(SixteenBitFloat, NarrowsEveryPatternBackToItself) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const TypeParam back(static_cast<float>(from_bits<TypeParam>(bits)));
    if (std::isnan(reference<TypeParam>(bits))) {
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TYPED_TEST(SixteenBitFloat, RoundsBetweenNeighboursToTheNearestAndTiesToEven) {
  for (std::uint32_t low = 0; low < kInfinity<TypeParam>; ++low) {
    const std::uint32_t high = low + 1;
    const double below = reference<TypeParam>(low);
    // Past the largest number the next one would be twice the last step away: that is where infinity begins.
    const double above =
        high < kInfinity<TypeParam> ? reference<TypeParam>(high) : 2 * below - reference<TypeParam>(low - 1);
    const auto middle = static_cast<float>((below + above) / 2);
    if (static_cast<double>(middle) != (below + above) / 2) continue;  // not an f32: no tie to test
    const std::uint32_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(TypeParam(middle).bits, even) << low;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0f)).bits, low) << low;
    ASSERT_EQ(TypeParam(std::nextafter(middle, HUGE_VALF)).bits, high) << low;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000u) << low;
  }
}

TYPED_TEST(SixteenBitFloat, KeepsInfinitiesAndNaN) {
  EXPECT_EQ(TypeParam(HUGE_VALF).bits, kInfinity<TypeParam>);
  EXPECT_EQ(TypeParam(-HUGE_VALF).bits, kInfinity<TypeParam> | 0x8000u);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::numeric_limits<float>::signaling_NaN()))));
}

}  // namespace
}  // namespace tulle
