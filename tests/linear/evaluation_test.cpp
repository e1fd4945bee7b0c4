#include "linear/evaluation.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "linear/ordered_key.hpp"
#include "linear/sample_rows.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::linear {
namespace {

RC_GTEST_PROP(OrderedKey, KeepsTheOrderOfFloats, (float a, float b)) {
  RC_ASSERT((a < b) == (ordered_key(a) < ordered_key(b)));
  RC_ASSERT(from_ordered_key(ordered_key(a)) == a);
}

// The share of pairs of a positive and a negative that are in order; ties count half.
std::optional<double> area_by_pairs(const std::vector<std::pair<float, bool>>& scores) {
  double pairs = 0, good = 0;
  for (const auto& [positive, is_positive] : scores) {
    for (const auto& [negative, is_other_positive] : scores) {
      if (!is_positive || is_other_positive) continue;
      pairs += 1;
      good += positive > negative ? 1 : positive == negative ? 0.5 : 0;
    }
  }
  return pairs > 0 ? std::optional(good / pairs) : std::nullopt;
}

RC_GTEST_PROP(AreaUnderCurve, EqualsTheShareOfOrderedPairs, (std::vector<std::pair<std::int8_t, bool>> drawn)) {
  std::vector<std::pair<float, bool>> scores;
  std::vector<std::uint32_t> keys;
  std::vector<std::int64_t> counts;
  for (const auto& [score, is_positive] : drawn) {
    scores.emplace_back(score, is_positive);
    keys.push_back(ordered_key(score));
    counts.push_back(is_positive ? std::int64_t{1} << 32 : 1);
  }
  const auto stream = Stream<std::int64_t>::from_pairs<std::uint32_t>(kKeys, keys, counts);
  const auto area = area_under_curve(stream), expected = area_by_pairs(scores);
  RC_ASSERT(area.has_value() == expected.has_value());  // none without a positive and a negative
  RC_ASSERT(!area || std::abs(*area - *expected) < 1e-12);
}

TEST(Evaluate, GivesTheSameOnAnyNumberOfRanks) {
  const Rows rows = testing::sample_rows({.rows = 101});
  LinearModel model{.features = 30, .classes = {-1, 1}, .weights = std::vector<float>(30, 0.3f), .intercepts = {0.1f}};
  std::vector<Evaluation> seen;
  for (const int ranks : {1, 3}) {
    std::vector<Evaluation> of_rank(static_cast<std::size_t>(ranks));
    run_threads(ranks, [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      Dataset part(testing::slice_rows(rows, rank * 101 / of_rank.size(), (rank + 1) * 101 / of_rank.size()));
      of_rank[rank] = evaluate(communicator, part, model);
    });
    seen.insert(seen.end(), of_rank.begin(), of_rank.end());
  }
  for (const Evaluation& each : seen) {
    EXPECT_EQ(each.rows, 101);
    EXPECT_NEAR(each.loss, seen[0].loss, 1e-12);
    EXPECT_EQ(each.accuracy, seen[0].accuracy);
    EXPECT_EQ(each.auc, seen[0].auc);
  }
  EXPECT_GT(seen[0].auc.value(), 0);
}

}  // namespace
}  // namespace tulle::linear
