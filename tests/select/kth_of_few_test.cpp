// The k-th largest by counting and by radix selection, against sorting, on every target.
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "select/kth_largest.hpp"
#include "select/reference.hpp"

namespace tulle::test {
namespace {

template <class K>
std::vector<K> random_keys(std::size_t count, std::uint64_t seed, K mask) {
  Philox random(seed);
  std::vector<K> keys(count);
  for (K& key : keys) key = static_cast<K>(random()) & mask;
  return keys;
}

template <class K>
void expect_sorted(const std::vector<K>& keys) {
  std::vector<K> sorted = keys;
  std::ranges::sort(sorted, std::greater<K>());
  for (const std::size_t k : {std::size_t{1}, std::size_t{2}, keys.size() / 3 + 1, keys.size() - 1, keys.size()}) {
    if (k < 1 || k > keys.size()) continue;
    EXPECT_EQ(kth_of_few(std::span(keys), k), sorted[k - 1]) << k << " of " << keys.size();
    PoolVector<K> some(keys.begin(), keys.end());
    EXPECT_EQ(kth_largest(some, k), sorted[k - 1]) << k << " of " << keys.size();
  }
}

template <class K>
class KthLargest : public ::testing::Test {};
using KeyTypes = ::testing::Types<std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(KthLargest, KeyTypes);

TYPED_TEST(KthLargest, EqualsSorting) {
  const TypeParam all = std::numeric_limits<TypeParam>::max();
  for_each_target([&] {
    for (const std::size_t count : {1, 2, 7, 15, 16, 17, 300, 1000, 5000}) {
      for (const TypeParam mask : {all, TypeParam{0xff}, TypeParam{1}, TypeParam{0}}) {
        expect_sorted(random_keys<TypeParam>(count, count + mask, mask));
      }
      expect_sorted(std::vector<TypeParam>(count, all));
      std::vector<TypeParam> one(count, 0);
      one[count / 2] = 1;
      expect_sorted(one);
    }
  });
}

}  // namespace
}  // namespace tulle::test
