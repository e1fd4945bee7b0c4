// Dense sums on every instruction set that this CPU has.
#include "stream/kernels.hpp"
#include "stream/model.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::test {
namespace {

template <class V>
std::vector<V> random_values(std::size_t count, std::uint64_t seed) {
  const auto peculiar = peculiar_values<V>();
  Philox random(seed);
  std::vector<V> values(count);
  for (V& value : values)
    value = random.below(4) == 0 ? peculiar[random.below(peculiar.size())] : static_cast<V>(random());
  return values;
}

template <class V>
std::byte* bytes(std::vector<V>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

template <class V>
class CombineDense : public ::testing::Test {};
TYPED_TEST_SUITE(CombineDense, ComputeTypes);

template <class V>
void check_against_model(const Op& op, std::size_t count) {
  auto lower = random_values<V>(count, 1);
  auto higher = random_values<V>(count, 2);
  std::vector<V> expected(count);
  for (std::size_t i = 0; i < count; ++i) expected[i] = combined(op.code(), lower[i], higher[i]);
  std::vector<V> result(count);
  combine_dense(kValueTypeOf<V>, op, bytes(result), bytes(lower), bytes(higher), count);
  EXPECT_TRUE(same_values(result, expected)) << op.name() << ' ' << count;
  auto over_lower = lower;
  combine_dense(kValueTypeOf<V>, op, bytes(over_lower), bytes(over_lower), bytes(higher), count);
  EXPECT_TRUE(same_values(over_lower, expected)) << op.name() << ' ' << count;
  combine_dense(kValueTypeOf<V>, op, bytes(higher), bytes(lower), bytes(higher), count);
  EXPECT_TRUE(same_values(higher, expected)) << op.name() << ' ' << count;
}

TYPED_TEST(CombineDense, EqualsTheModelOnEveryTarget) {
  for_each_target([] {
    for (const std::size_t count : {0, 1, 3, 15, 16, 17, 31, 33, 64, 100, 1000, 4097}) {
      for (const Op& op : ops_on<TypeParam>()) check_against_model<TypeParam>(op, count);
    }
  });
}

}  // namespace
}  // namespace tulle::test
