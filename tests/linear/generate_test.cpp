#include "tulle/linear/generate.hpp"

#include <gtest/gtest.h>

#include <map>

#include "linear/sample_rows.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

TEST(GenerateRows, IsThePartOfAnEndlessSet) {
  const GenerateOptions options{.features = 5000, .nonzeros_per_row = 20};
  const Rows all = generate_rows(options, 0, 100);
  testing::expect_same_rows(generate_rows(options, 40, 60), testing::slice_rows(all, 40, 100));
}

TEST(GenerateRows, HasAboutAsManyNonZerosAsAsked) {
  for (const std::string_view name : {"url", "webspam"}) {
    const GenerateOptions options = generate_like(name);
    const Rows rows = generate_rows(options, 0, 50);
    const double mean = static_cast<double>(rows.nonzeros()) / 50;
    EXPECT_NEAR(mean / options.nonzeros_per_row, 1, 0.15) << name;
    EXPECT_LT(rows.features(), options.features + 1);
    EXPECT_EQ(rows.is_binary(), name == "url");
  }
}

TEST(GenerateRows, SomeFeaturesAreInMostRowsAndMostAreInAlmostNone) {
  const Rows rows = generate_rows({.features = 100000, .nonzeros_per_row = 50}, 0, 400);
  std::map<std::uint32_t, int> counts;
  for (const std::uint32_t index : rows.indices()) counts[index] += 1;
  int most = 0, once = 0;
  for (const auto& [index, count] : counts) {
    most = std::max(most, count);
    once += count == 1;
  }
  EXPECT_GT(most, 300);
  EXPECT_GT(once, static_cast<int>(counts.size()) / 2);
}

TEST(GenerateRows, RefusesImpossibleShapes) {
  EXPECT_THROW(generate_rows({.features = 1}, 0, 1), Error);
  EXPECT_THROW(generate_rows({.features = 100, .nonzeros_per_row = 90}, 0, 1), Error);
  EXPECT_THROW(generate_like("mnist"), Error);
}

}  // namespace
}  // namespace tulle::linear
