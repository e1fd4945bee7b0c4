// Copies past the cache and through it, at every place of a vector.
#include "stream/array_writer.hpp"

#include <numeric>

#include "stream/model.hpp"

namespace tulle::test {
namespace {

constexpr std::size_t kMost = 200, kPlaces = 16;  // values; places in a cache line of which a copy may begin

// What is around the copy must stay as it was.
void expect_copies(const ArrayWriter& writer, std::size_t from, std::size_t to, std::size_t count) {
  std::vector<float> source(kMost + kPlaces), target(kMost + 2 * kPlaces, -1.0f), expected = target;
  std::iota(source.begin(), source.end(), 1.0f);
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), count,
              expected.begin() + static_cast<std::ptrdiff_t>(to));
  writer.copy(source.data() + from, target.data() + to, count);
  EXPECT_EQ(target, expected) << from << ' ' << to << ' ' << count;
}

TEST(ArrayWriter, copies_from_and_to_any_place_on_every_target) {
  for_each_target([] {
    const ArrayWriter plain(kMost), past_cache(kPastCacheBytes / sizeof(float));
    ASSERT_FALSE(plain.is_past_cache());
    ASSERT_TRUE(past_cache.is_past_cache());
    for (std::size_t place = 0; place < kPlaces; ++place) {
      for (const std::size_t count : {0, 1, 2, 15, 16, 17, 31, 33, 64, 100, 200}) {
        expect_copies(plain, 0, place, count);
        expect_copies(past_cache, 0, place, count);
        expect_copies(past_cache, place, place, count);
      }
    }
  });
}

}  // namespace
}  // namespace tulle::test
