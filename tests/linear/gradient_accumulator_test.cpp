#include "linear/gradient_accumulator.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "linear/losses.hpp"
#include "linear/sample_rows.hpp"

namespace tulle::linear {
namespace {

std::map<std::uint32_t, float> as_map(const AnyStream& stream) {
  stream.validate();
  const auto indices = stream.indices_buffer().as<std::uint32_t>();
  const auto values = stream.values_buffer().as<float>();
  std::map<std::uint32_t, float> map;
  for (std::size_t i = 0; i < indices.size(); ++i) map[indices[i]] = values[i];
  return map;
}

RC_GTEST_PROP(GradientAccumulator, AddsLikeAMap, (std::vector<std::uint16_t> places)) {
  constexpr std::uint64_t kSpread = 40;  // so that places lie under several words of the upper bitmaps
  GradientAccumulator accumulator(65536 * kSpread);
  for (int round = 0; round < 2; ++round) {  // the second one starts from nothing again
    std::map<std::uint32_t, float> expected;
    for (std::size_t i = 0; i < places.size(); ++i) {
      accumulator.add(kSpread * places[i], static_cast<float>(i + 1));
      expected[static_cast<std::uint32_t>(kSpread * places[i])] += static_cast<float>(i + 1);
    }
    RC_ASSERT(as_map(accumulator.take()) == expected);
  }
}

TEST(GradientAccumulator, EndsWithTheTail) {
  GradientAccumulator accumulator(100);
  accumulator.add(99, 2.0f);
  const float tail[] = {7, 8};
  const AnyStream stream = accumulator.take(tail);
  EXPECT_EQ(stream.dimension(), 102u);
  EXPECT_EQ(as_map(stream), (std::map<std::uint32_t, float>{{99, 2}, {100, 7}, {101, 8}}));
}

TEST(GradientAccumulator, GivesTheSameBitsOnAnyNumberOfThreads) {
  Dataset data(testing::sample_rows({.rows = 500, .features = 60000, .density = 0.003}));
  BatchCursor cursor(data, 1, true);
  cursor.begin_epoch(0);
  Batch batch;
  cursor.next(500, batch);
  std::vector<float> coefficients;
  for (std::size_t i = 0; i < batch.size(); ++i) coefficients.push_back(1.0f / static_cast<float>(i + 3));
  GradientAccumulator one(130000), many(130000);
  for (const std::uint64_t offset : {0, 61000}) {
    one.add_rows(batch, coefficients, offset, 1);
    many.add_rows(batch, coefficients, offset, 4);
  }
  EXPECT_TRUE(one.take() == many.take());
}

TEST(Losses, HaveTheSlopesOfFiniteDifferences) {
  for (const Loss loss : {Loss::logistic, Loss::hinge, Loss::squared_hinge, Loss::squares}) {
    visit_loss(loss, []<class L>() {
      for (const double label : {-1.0, 1.0}) {
        for (double margin = -4.05; margin < 4; margin += 0.1) {
          const double step = 1e-5;
          const double expected = (L::value(margin + step, label) - L::value(margin - step, label)) / (2 * step);
          EXPECT_NEAR(L::slope(margin, label), expected, 1e-5) << margin;
        }
      }
    });
  }
}

TEST(Losses, AreFiniteForHugeMargins) {
  using L = LossOf<Loss::logistic>;
  EXPECT_NEAR(L::value(-1000, 1), 1000, 1e-9);
  EXPECT_EQ(L::value(1000, 1), 0);
  EXPECT_EQ(L::slope(1000, 1), 0);
  EXPECT_EQ(L::slope(-1000, 1), -1);
}

}  // namespace
}  // namespace tulle::linear
