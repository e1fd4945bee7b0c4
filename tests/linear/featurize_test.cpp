#include "tulle/linear/featurize.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tulle::linear {
namespace {

Rows featurized(std::string_view line, const FeaturizeOptions& options = {}) {
  Rows rows;
  EXPECT_FALSE(featurize_line(line, options, rows)) << line;
  return rows;
}

TEST(FeaturizeLine, CountsTrigrams) {
  const Rows rows = featurized("+1\tabcabc", {.value = FeatureValue::count});  // abc twice, bca, cab
  EXPECT_EQ(rows.label(0), 1);
  ASSERT_EQ(rows.nonzeros(), 3u);
  EXPECT_EQ(rows[0].value(0) + rows[0].value(1) + rows[0].value(2), 4);
}

TEST(FeaturizeLine, ScalesToLengthOne) {
  const Rows rows = featurized("-1\tthe quick brown fox the");
  double squares = 0;
  for (const float value : rows.values()) squares += value * value;
  EXPECT_NEAR(squares, 1, 1e-6);
}

TEST(FeaturizeLine, AddsTokensAndTheirBigrams) {
  FeaturizeOptions options{.trigrams = false, .tokens = true, .value = FeatureValue::binary};
  EXPECT_EQ(featurized("1\tone two/three", options).nonzeros(), 3u);
  options.token_bigrams = true;
  EXPECT_EQ(featurized("1\tone two/three", options).nonzeros(), 5u);
  EXPECT_TRUE(featurized("1\tone one one", options).is_binary());
}

TEST(FeaturizeLine, TakesShortAndEmptyTexts) {
  EXPECT_EQ(featurized("1\tab").nonzeros(), 0u);
  EXPECT_EQ(featurized("1\t").size(), 1u);
  EXPECT_EQ(featurized("").size(), 0u);
}

TEST(FeaturizeLine, RefusesLinesWithoutLabelOrTab) {
  Rows rows;
  EXPECT_EQ(featurize_line("no tab here", {}, rows)->reason, "expected a label, a TAB and a text");
  EXPECT_EQ(featurize_line("x\ttext", {}, rows)->reason, "expected a label, which is a finite number");
  EXPECT_EQ(rows.size(), 0u);
}

TEST(FeaturizeLine, SpreadsFeaturesOverTheDimension) {
  std::string text = "1\t";
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * 7919);
  const Rows rows = featurized(text, {.dimension = 1000, .value = FeatureValue::binary});
  EXPECT_GT(rows.nonzeros(), 550u);  // a thousand different trigrams of digits in a thousand places: 632
  EXPECT_LT(rows.nonzeros(), 710u);
}

}  // namespace
}  // namespace tulle::linear
