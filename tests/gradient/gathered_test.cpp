// Recipes that gather coded contributions.
#include <cmath>

#include "gradient/training.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

// Figure 2 of 3LC with two ranks and two steps, s = 1: accumulate, quantize to {-M, 0, M}, keep what is lost.
TEST(ThreeLc, FollowsFigure2ByHand) {
  Training training{.recipe = parse_recipe("three_lc|aggregate:sum"), .parameters = {{"w", 4}}, .steps = 2};
  training.gradient = [](int rank, std::uint64_t step, ParameterId) -> Values {
    if (step == 0) return rank == 0 ? Values{4, -1, 1, -3} : Values{2, 1, -2, 0};
    return rank == 0 ? Values{1, -1, 1, 1} : Values{0, 0, 0, 8};
  };
  const Trained trained = train(training);
  // Rank 0: M = 4, sends {4, 0, 0, -4} and keeps {0, -1, 1, 1}. Rank 1: M = 2, 1 = M/2 becomes 2; keeps {0, -1, 0, 0}.
  EXPECT_EQ(trained.updates[0][0][0], (Values{6, 2, -2, -4}));
  // Rank 0 holds {1, -2, 2, 2}, M = 2: sends {2, -2, 2, 2}. Rank 1 holds {0, -1, 0, 8}, M = 8: sends {0, 0, 0, 8}.
  EXPECT_EQ(trained.updates[1][0][1], (Values{2, -2, 2, 10}));
  EXPECT_EQ(trained.residuals[0][0], (Values{-1, 0, 0, 0}));
  EXPECT_EQ(trained.residuals[0][1], (Values{0, -1, 0, 0}));
}

// RedSync's quantization by hand: in even steps positive values, in odd ones negative values, each as one mean.
TEST(RedsyncQuantized, TakesTurnsWithSigns) {
  Training training{.ranks = 1,
                    .recipe = parse_recipe("redsync_quantized:40%|momentum:0|masking:off|dense_below:0"),
                    .parameters = {{"w", 5}, {"last", 5, Role::output}},
                    .steps = 2};
  training.gradient = [](int, std::uint64_t step, ParameterId) -> Values {
    return step == 0 ? Values{6, -9, 2, 1, -3} : Values{0, 0, 0, 0, 0};
  };
  const Trained trained = train(training);
  // 6 and 2 travel as 4 each; 2 and -2 stay.
  EXPECT_EQ(trained.updates[0][0][0], (Values{4, 0, 4, 0, 0}));
  // Of {2, -9, -2, 1, -3} the two most negative, -9 and -3, travel as -6.
  EXPECT_EQ(trained.updates[1][0][0], (Values{0, -6, 0, 0, -6}));
  EXPECT_EQ(trained.residuals[0][0], (Values{2, -3, -2, 1, 3}));
  // An output layer is not quantized: its largest values of any sign travel as they are.
  EXPECT_EQ(trained.updates[0][1][0], (Values{6, -9, 0, 0, 0}));
}

TEST(MeanOfSenders, DividesByThoseWhoSentAnIndex) {
  Training training{.ranks = 3,
                    .recipe = parse_recipe("topk:1/2|dense_below:0|row:auto|exchange:gather|aggregate:mean_of_senders"),
                    .parameters = {{"w", 4}}};
  training.gradient = [](int rank, std::uint64_t, ParameterId) -> Values {
    if (rank == 0) return {8, 1, 0, 3};
    return rank == 1 ? Values{4, 1, 6, 1} : Values{1, 5, 2, 0};
  };
  const Trained trained = train(training);
  // Of each pair one is sent: ranks 0 and 1 send the first, rank 2 the second; then rank 0 the fourth, others the
  // third.
  EXPECT_EQ(trained.updates[0][0][0], (Values{6, 5, 4, 3}));
  EXPECT_EQ(trained.residuals[0][2], (Values{1, 0, 0, 0}));
}

TEST(MeanOfSenders, ClipsLargeContributionsToTheMedianNorm) {
  Training training{.ranks = 3,
                    .recipe = parse_recipe("topk:1/2|dense_below:0|row:auto|exchange:gather|aggregate:mean_of_senders|"
                                           "clipping:median_norm"),
                    .parameters = {{"w", 4}}};
  training.gradient = [](int rank, std::uint64_t, ParameterId) -> Values {
    if (rank == 0) return {3, 0, 4, 0};  // norm 5
    return rank == 1 ? Values{30, 0, 0, 40} : Values{0, 1, 0, 0};
  };
  // Rank 1's norm of 50 becomes 5.
  EXPECT_EQ(train(training).updates[0][0][0], (Values{3, 1, 4, 4}));
}

// SparseLoCo's update by hand: decay 1/2, one of every two values. Two values of a rank fall into one bin, so that both
// are decoded as their mean.
TEST(SparseLoco, FollowsItsUpdateByHand) {
  Training training{.recipe = parse_recipe("sparseloco|keep:1/2|decay:0.5"), .parameters = {{"w", 4}}, .steps = 2};
  training.gradient = [](int rank, std::uint64_t step, ParameterId) -> Values {
    if (step == 1) return Values(4);
    return rank == 0 ? Values{8, 1, 0, 3} : Values{4, 1, 6, 1};
  };
  const Trained trained = train(training);
  // Rank 0 sends 8 and 3 as 5.5 each, norm 7.78; rank 1 sends 4 and 6 as 5 each, norm 7.07, the median. Rank 0's values
  // are scaled down to 5.
  const Values expected = {5, 0, 5, 5};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(trained.updates[0][0][1][i], expected[i], 1e-5);
  // {2.5, 1, 0, -2.5} and {-1, 1, 1, 1} stay and are halved; what is then sent has the mean 0 and says nothing.
  EXPECT_EQ(trained.residuals[0][0], (Values{1.25f, 0.5f, 0, -1.25f}));
  EXPECT_EQ(trained.residuals[0][1], (Values{-0.5f, 0.5f, 0.5f, 0.5f}));
}

TEST(SparseLoco, TakesFewerThan10BitsAValueThatItSends) {
  constexpr std::uint64_t kSize = 1 << 20;
  Training training{.recipe = parse_recipe("sparseloco"), .parameters = {{"w", kSize}}};
  training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
    return float_gradient(kSize, rank, step, id);
  };
  const Trained trained = train(training);
  const ParameterStats& stats = trained.stats[0][0];
  EXPECT_EQ(stats.taken, kSize / 64);
  EXPECT_LE(8.0 * static_cast<double>(stats.bytes_sent) / static_cast<double>(stats.taken), 9.7);
  EXPECT_GE(static_cast<double>(kSize * sizeof(float)) / static_cast<double>(stats.bytes_sent), 210);
  // How indices travel does not show in what arrives.
  training.recipe = parse_recipe("sparseloco|indices:raw");
  const Trained raw = train(training);
  EXPECT_EQ(raw.updates, trained.updates);
  EXPECT_GT(raw.stats[0][0].bytes_sent, 3 * stats.bytes_sent);
}

// What coding loses stays with the sender, to rounding.
class CodedContributions : public ::testing::TestWithParam<const char*> {};

TEST_P(CodedContributions, LoseNothingOverSteps) {
  constexpr std::uint64_t kSize = 3000;
  constexpr int kRanks = 4;
  Training training{.ranks = kRanks, .recipe = parse_recipe(GetParam()), .parameters = {{"w", kSize}}, .steps = 5};
  training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
    return float_gradient(kSize, rank, step, id);
  };
  const Trained trained = train(training);
  expect_same_updates(trained);
  std::vector<double> sum(kSize);
  for (std::uint64_t step = 0; step < training.steps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Values gradient = float_gradient(kSize, rank, step, 0);
      for (std::size_t i = 0; i < kSize; ++i) sum[i] += gradient[i];
    }
  }
  double kept = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    double after = 0;
    for (std::uint64_t step = 0; step < training.steps; ++step)
      after += kRanks * double{trained.updates[step][0][0][i]};
    for (const Values& residual : trained.residuals[0]) {
      after += residual[i];
      kept += std::abs(residual[i]);
    }
    ASSERT_NEAR(after, sum[i], 1e-4) << "at " << i;
  }
  EXPECT_GT(kept, 1);
}
INSTANTIATE_TEST_SUITE_P(Recipes, CodedContributions,
                         ::testing::Values("three_lc", "three_lc:1.75", "one_bit",
                                           "redsync_quantized:2%|momentum:0|masking:off|dense_below:0",
                                           "topk:2%|dense_below:0|row:auto|exchange:gather|qsgd:4",
                                           "topk:16/512|dense_below:0|row:auto|exchange:gather|int8",
                                           "three_value_stochastic|ef|stochastic_feedback"),
                         [](const auto& row) {
                           std::string name = row.param;
                           for (char& letter : name) letter = std::isalnum(letter) != 0 ? letter : '_';
                           return name;
                         });

TEST(ThreeLc, SkipsAndSendsSmallRolesWhole) {
  Training training{.ranks = 2,
                    .recipe = parse_recipe("three_lc"),
                    .parameters = {{"w", 4}, {"norm", 4, Role::bias_or_norm}},
                    .steps = 2};
  training.gradient = [](int rank, std::uint64_t step, ParameterId) -> Values {
    if (rank == 1 && step == 1) return {};
    return {4, 1, -2, 3};
  };
  const Trained trained = train(training);
  expect_same_updates(trained);
  EXPECT_EQ(trained.updates[0][1][0], (Values{4, 1, -2, 3}));
  EXPECT_EQ(trained.updates[1][1][0], (Values{2, 0.5f, -1, 1.5f}));
  EXPECT_EQ(trained.residuals[0][1], (Values{0, 1, 2, -1}));  // of the first step: it kept it
}

}  // namespace
}  // namespace tulle::gradient
