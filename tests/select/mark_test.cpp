// The kernel under the selectors, on every instruction set that this CPU has.
#include "select/mark.hpp"

#include "select/reference.hpp"

namespace tulle::test {
namespace {

constexpr Side kSides[] = {Side::both, Side::positive, Side::negative};

template <class V>
class Mark : public ::testing::Test {};
TYPED_TEST_SUITE(Mark, ComputeTypes);

// By comparing values, not keys. NaN and infinity are marked whichever side is asked for.
template <class V>
bool reaches(V value, Side side, V low) {
  if constexpr (kIsFloat<V>) {
    if (!std::isfinite(value)) return true;
  }
  if (side != Side::both && (value < 0) != (side == Side::negative)) return false;
  return magnitude(value) >= magnitude(low);
}

template <class V>
void check_against_comparing(const std::vector<V>& values, Side side, V low) {
  std::vector<std::uint64_t> words(values.size() / 64, ~std::uint64_t{0});
  mark(values.data(), values.size(), side, magnitude_key(low), words.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ((words[i / 64] >> i % 64) & 1, reaches(values[i], side, low))
        << "value " << values[i] << " at " << i << ", low " << low << ", side " << static_cast<int>(side);
  }
}

TYPED_TEST(Mark, EqualsComparingValuesOnEveryTarget) {
  std::vector<TypeParam> values = mixed_values<TypeParam>(1024, 1);
  if constexpr (kIsFloat<TypeParam>) {
    using Limits = std::numeric_limits<TypeParam>;
    values[3] = Limits::infinity();
    values[64] = -Limits::infinity();
    values[700] = Limits::quiet_NaN();
    values[1023] = -Limits::quiet_NaN();
  }
  for_each_target([&] {
    for (const Side side : kSides) {
      for (const TypeParam low : peculiar_values<TypeParam>()) {
        if (low != 0) check_against_comparing(values, side, low);
      }
    }
  });
}

TYPED_TEST(Mark, MarksNothingByAKeyThatNoValueHas) {
  const std::vector<TypeParam> values = mixed_values<TypeParam>(64, 2);
  std::uint64_t word = 1;
  mark(values.data(), 64, Side::both, std::numeric_limits<Key>::max(), &word);
  EXPECT_EQ(word, 0u);
}

TYPED_TEST(Mark, KeysOfThresholdsRoundUp) {
  for (const double threshold : {1e-320, 1e-40, 0.1, 1.0, 1.5, 7.0, 1e9}) {
    const Key key = key_at_least<TypeParam>(threshold);
    EXPECT_GE(magnitude_of<TypeParam>(key), threshold);
    if (key > 0) {
      EXPECT_LT(magnitude_of<TypeParam>(key - 1), threshold);
    }
  }
  EXPECT_EQ(key_at_least<TypeParam>(0), 0u);
  EXPECT_EQ(key_at_least<TypeParam>(-1), 0u);
}

}  // namespace
}  // namespace tulle::test
