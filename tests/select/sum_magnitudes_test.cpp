#include "select/sum_magnitudes.hpp"

#include "select/reference.hpp"

namespace tulle::test {
namespace {

template <class V>
class SumMagnitudes : public ::testing::Test {};
TYPED_TEST_SUITE(SumMagnitudes, ComputeTypes);

TYPED_TEST(SumMagnitudes, IsExactOnSmallIntegersAndTheSameOnEveryTarget) {
  for (const std::size_t count : {0, 1, 63, 64, 65, 1000, 8192, 8255, 20001}) {
    std::vector<TypeParam> integers(count);
    double expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
      integers[i] = static_cast<TypeParam>(static_cast<int>(i % 7) - 3);
      expected += static_cast<double>(magnitude(integers[i]));
    }
    std::vector<TypeParam> mixed = mixed_values<TypeParam>(count, 1);
    const double sum = sum_magnitudes(mixed.data(), count);
    for_each_target([&] {
      EXPECT_EQ(sum_magnitudes(integers.data(), count), expected) << count;
      EXPECT_EQ(sum_magnitudes(mixed.data(), count), sum) << count;
    });
  }
}

TYPED_TEST(SumMagnitudes, OfASideCountTheOthersAsZeros) {
  for (const std::size_t count : {0, 1, 64, 65, 8255}) {
    std::vector<TypeParam> values(count);
    double positive = 0, negative = 0;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<TypeParam>(static_cast<int>(i % 9) - 3);
      (values[i] > 0 ? positive : negative) += static_cast<double>(magnitude(values[i]));
    }
    for_each_target([&] {
      EXPECT_EQ(sum_magnitudes(values.data(), count, Side::positive), positive) << count;
      EXPECT_EQ(sum_magnitudes(values.data(), count, Side::negative), negative) << count;
    });
  }
}

TEST(MeanMagnitude, IsThatOfAllPartsForAnyNumberOfThreads) {
  std::vector<float> values(700001, -0.5f);
  values.back() = 350000.5f;
  for (const int threads : {0, 1, 3}) {
    const DenseInput input{.type = ValueType::f32,
                           .dimension = values.size(),
                           .range = {0, values.size()},
                           .values = reinterpret_cast<const std::byte*>(values.data()),
                           .threads = threads};
    EXPECT_EQ(mean_magnitude(input), (350000.0 + 350000.5) / 700001.0);
  }
  EXPECT_EQ(mean_magnitude({.type = ValueType::f32}), 0);
}

}  // namespace
}  // namespace tulle::test
