#include "tulle/gradient/synchronizer.hpp"

#include <cmath>
#include <latch>
#include <limits>

#include "gradient/training.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

// What dense training would have delivered for a parameter in all steps together: the sum over ranks and steps.
std::vector<double> sum_of_gradients(const Training& training, ParameterId id) {
  std::vector<double> sum(training.parameters[id].size);
  for (std::uint64_t step = 0; step < training.steps; ++step) {
    for (int rank = 0; rank < training.ranks; ++rank) {
      const Values gradient = training.gradient(rank, step, id);
      for (std::size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
    }
  }
  return sum;
}

// What was delivered, as a sum over ranks, and what is still there.
std::vector<double> delivered_and_kept(const Training& training, const Trained& trained, ParameterId id) {
  std::vector<double> sum(training.parameters[id].size);
  const double factor = training.recipe.aggregate == Aggregate::mean ? training.ranks : 1;
  for (const auto& step : trained.updates) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * step[id].front()[i];
  }
  for (const Values& residual : trained.residuals[id]) {
    for (std::size_t i = 0; i < residual.size(); ++i) sum[i] += residual[i];
  }
  return sum;
}

Training integers(const char* recipe, int ranks, std::uint64_t steps = 4) {
  Training training{.ranks = ranks, .recipe = parse_recipe(recipe), .steps = steps};
  training.parameters = {
      {"hidden", 3000, Role::hidden, 50}, {"output", 700, Role::output, 20}, {"bias", 10, Role::bias_or_norm}};
  training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
    return integer_gradient(sizes[id].size, rank, step, id);
  };
  return training;
}

std::string name_of(const char* recipe) {
  std::string name = recipe;
  for (char& letter : name) letter = std::isalnum(letter) != 0 ? letter : '_';
  return name;
}

class EveryPreset : public ::testing::TestWithParam<const Preset*> {};

// All that send anything.
std::vector<const Preset*> sending_presets() {
  std::vector<const Preset*> rows;
  for (const Preset& preset : presets()) {
    if (preset.recipe.exchange != Exchange::none) rows.push_back(&preset);
  }
  return rows;
}

TEST_P(EveryPreset, GivesAllRanksTheSameUpdatesAtAnyNumberOfRanks) {
  const Preset& preset = *GetParam();
  for (const int ranks : {1, 2, 3, 5, 8}) {
    Training training = integers("dense", ranks, 3);
    training.recipe = preset.recipe;
    training.recipe.dense_below = 0;
    const Trained trained = train(training);
    expect_same_updates(trained);
    EXPECT_GT(trained.stats[0][0].delivered, 0u) << ranks << " ranks";
  }
}

TEST_P(EveryPreset, GivesTheSameInAnyOrderOfStartsOnAnyRank) {
  Training training = integers("dense", 5, 3);
  training.recipe = GetParam()->recipe;
  training.recipe.dense_below = 0;
  training.options.reproducible = true;
  const Trained in_order = train(training);
  training.any_order = true;
  for (training.seed = 1; training.seed <= 4; ++training.seed) {
    const Trained trained = train(training);
    ASSERT_EQ(trained.updates, in_order.updates) << "with seed " << training.seed;
    ASSERT_EQ(trained.residuals, in_order.residuals) << "with seed " << training.seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Presets, EveryPreset, ::testing::ValuesIn(sending_presets()),
                         [](const auto& row) { return std::string(row.param->name); });

class RecipesWithResiduals : public ::testing::TestWithParam<const char*> {};

TEST_P(RecipesWithResiduals, LoseNothingOverSteps) {
  for (const int ranks : {1, 2, 4, 8}) {
    const Training training = integers(GetParam(), ranks);
    const Trained trained = train(training);
    for (ParameterId id = 0; id < training.parameters.size(); ++id) {
      ASSERT_EQ(delivered_and_kept(training, trained, id), sum_of_gradients(training, id))
          << training.parameters[id].name << " on " << ranks << " ranks";
    }
    EXPECT_LT(trained.stats[0][0].taken, 3000u) << "nothing was left to keep";
  }
}
INSTANTIATE_TEST_SUITE_P(
    Recipes, RecipesWithResiduals,
    ::testing::Values("topk:1%|dense_below:0", "topk:5%|dense_below:100", "topk:16/512|dense_below:0",
                      "topk:16/512,randomized|dense_below:0", "topk|selector:trimmed_top_k|dense_below:0",
                      "redsync:1%|dense_below:0|momentum:0|masking:off",
                      "redsync:1%|dense_below:0|search_from:1|momentum:0|masking:off", "dgc:1%|momentum:0|masking:off",
                      "spardl:1%", "oktopk:1%", "gtopk:2%", "dense|row:topka|density:1%",
                      "dense|row:topkdsa|density:1%", "topk:1%|dense_below:0|warm_up:dense|warm_up_steps:2",
                      "topk:1%|dense_below:0|warm_up:densities|warm_up_steps:3", "topk:1%|dense_below:0|aggregate:sum"),
    [](const auto& row) { return name_of(row.param); });

// Algorithm 1 by hand. k = 1 of 4, two ranks.
TEST(TopK, FollowsAlgorithm1ByHand) {
  Training training{
      .recipe = parse_recipe("topk:25%|dense_below:0|aggregate:sum"), .parameters = {{"w", 4}}, .steps = 2};
  training.gradient = [](int rank, std::uint64_t step, ParameterId) -> Values {
    if (step == 0) return rank == 0 ? Values{5, 1, -2, 0} : Values{1, -4, 0, 3};
    return rank == 0 ? Values{1, 1, -2, 0} : Values{1, 0, 0, 2};
  };
  const Trained trained = train(training);
  // Step 1: rank 0 sends 5 at 0, rank 1 sends -4 at 1.
  EXPECT_EQ(trained.updates[0][0][0], (Values{5, -4, 0, 0}));
  // Step 2: rank 0 holds {1, 2, -4, 0} and sends -4 at 2; rank 1 holds {2, 0, 0, 5} and sends 5 at 3.
  EXPECT_EQ(trained.updates[1][0][1], (Values{0, 0, -4, 5}));
  EXPECT_EQ(trained.residuals[0][0], (Values{1, 2, 0, 0}));
  EXPECT_EQ(trained.residuals[0][1], (Values{2, 0, 0, 0}));
}

// RedSync's Algorithm 4 by hand: momentum 1/2, k = 1 of 3, masking.
TEST(Redsync, FollowsAlgorithm4ByHand) {
  Training training{.recipe = parse_recipe("redsync:density=0.34|momentum:0.5|reuse:1|selector:exact_top_k|"
                                           "dense_below:0|density:0.33|aggregate:sum"),
                    .parameters = {{"w", 3}},
                    .steps = 2};
  training.gradient = [](int rank, std::uint64_t step, ParameterId) -> Values {
    if (step == 0) return rank == 0 ? Values{8, 4, 2} : Values{-2, 6, 0};
    return rank == 0 ? Values{2, 2, 2} : Values{-2, 0, 8};
  };
  const Trained trained = train(training);
  // Step 1: U = V = G. Rank 0 sends 8 at 0, rank 1 sends 6 at 1; both clear U and V there.
  EXPECT_EQ(trained.updates[0][0][0], (Values{8, 6, 0}));
  // Step 2, rank 0: U = {0, 4, 2}/2 + {2, 2, 2} = {2, 4, 3}; V = {0, 4, 2} + U = {2, 8, 5}: sends 8 at 1.
  // Rank 1: U = {-2, 0, 0}/2 + {-2, 0, 8} = {-3, 0, 8}; V = {-2, 0, 0} + U = {-5, 0, 8}: sends 8 at 2.
  EXPECT_EQ(trained.updates[1][0][1], (Values{0, 8, 8}));
  EXPECT_EQ(trained.residuals[0][0], (Values{2, 0, 5}));
  EXPECT_EQ(trained.residuals[0][1], (Values{-5, 0, 0}));
  EXPECT_EQ(trained.momenta[0][0], (Values{2, 0, 3}));
  EXPECT_EQ(trained.momenta[0][1], (Values{-3, 0, 0}));
}

TEST(Redsync, AddsTheGradientOnceMoreWithNesterov) {
  Training training{
      .ranks = 1, .recipe = parse_recipe("dense|momentum:0.5|nesterov"), .parameters = {{"w", 2}}, .steps = 2};
  training.gradient = [](int, std::uint64_t, ParameterId) -> Values { return {4, -8}; };
  const Trained trained = train(training);
  EXPECT_EQ(trained.updates[0][0][0], (Values{8, -16}));
  EXPECT_EQ(trained.updates[1][0][0], (Values{10, -20}));  // u = 2 + 4, and 4 again
}

TEST(TopK, AtDensity1IsPlainSgdBitForBit) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    Training training{.ranks = ranks,
                      .recipe = parse_recipe("topk:1|dense_below:0|row:ssar_split_allgather"),
                      .parameters = {{"w", 1000}},
                      .steps = 3};
    training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
      return float_gradient(1000, rank, step, id);
    };
    const Trained trained = train(training);
    for (std::uint64_t step = 0; step < training.steps; ++step) {
      Values sum = training.gradient(0, step, 0);
      for (int rank = 1; rank < ranks; ++rank) {
        const Values gradient = training.gradient(rank, step, 0);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
      }
      for (float& value : sum) value /= static_cast<float>(ranks);
      ASSERT_EQ(trained.updates[step][0][0], sum) << "step " << step << " on " << ranks << " ranks";
    }
    EXPECT_EQ(trained.residuals[0][0], Values(1000));
  }
}

TEST(Momentum, AtDensity1IsMomentumSgd) {
  Training training = integers("topk:1|dense_below:0|momentum:0.5", 4, 3);
  const Trained trained = train(training);
  Values velocity(3000);
  for (std::uint64_t step = 0; step < training.steps; ++step) {
    Values mean(3000);
    for (int rank = 0; rank < 4; ++rank) {
      const Values gradient = training.gradient(rank, step, 0);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i] / 4;
    }
    for (std::size_t i = 0; i < mean.size(); ++i) velocity[i] = 0.5f * velocity[i] + mean[i];
    ASSERT_EQ(trained.updates[step][0][0], velocity);
  }
}

// Every preset, with starts in another order on each rank and in each step. Layers travel together and apart.
TEST(SynchronizerOnThreads, GivesTheBitsOfTheSimulatorInAnyOrder) {
  std::vector<std::pair<std::string, Recipe>> recipes = {{"adaptive:three_lc", parse_recipe("adaptive:three_lc")}};
  for (const Preset* const preset : sending_presets()) recipes.emplace_back(preset->name, preset->recipe);
  for (auto& [name, recipe] : recipes) {
    recipe.dense_below = 0;
    Training training = integers("dense", 3, 3);
    training.recipe = recipe;
    training.any_order = true;
    training.options.reproducible = true;
    for (const std::uint64_t fuse_below : {2000u, 0u}) {
      training.options.fuse_below = fuse_below;
      training.seed += 1;
      const Trained simulated = train(training), threaded = train_on_threads(training);
      EXPECT_EQ(threaded.updates, simulated.updates) << name << ", fused below " << fuse_below;
      EXPECT_EQ(threaded.residuals, simulated.residuals) << name << ", fused below " << fuse_below;
    }
  }
}

TEST(Momentum, IsClearedExactlyWhereValuesLeft) {
  for (const char* const text :
       {"topk:2%|dense_below:0|momentum:0.5|masking", "dense|row:topka|density:2%|momentum:0.5|masking"}) {
    const Training training = integers(text, 4, 1);
    const Trained trained = train(training);
    for (int rank = 0; rank < 4; ++rank) {
      const Values gradient = training.gradient(rank, 0, 0);
      const Values& residual = trained.residuals[0][static_cast<std::size_t>(rank)];
      const Values& momentum = trained.momenta[0][static_cast<std::size_t>(rank)];
      std::size_t cleared = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const bool left = residual[i] == 0 && gradient[i] != 0;
        ASSERT_EQ(momentum[i], left ? 0 : gradient[i]) << text << " at " << i;
        cleared += left;
      }
      EXPECT_EQ(cleared, 60u);
    }
  }
}

// SparDL's values that come back keep their momentum.
TEST(Momentum, StaysWhereAValueCameBack) {
  const Training training = integers("gtopk:1%|momentum:0.5|masking", 8, 1);
  const Trained trained = train(training);
  std::size_t returned = 0;
  for (std::size_t rank = 0; rank < 8; ++rank) {
    const Values gradient = training.gradient(static_cast<int>(rank), 0, 0);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (trained.updates[0][0][0][i] != 0) continue;
      ASSERT_EQ(trained.momenta[0][rank][i], gradient[i]);
      returned += gradient[i] != 0;
    }
  }
  EXPECT_GT(returned, 0u);
}

TEST(Accumulation, DecaysAndClipsAndAddsWeights) {
  Training training{
      .ranks = 1, .recipe = parse_recipe("topk:25%|dense_below:0|decay:0.5"), .parameters = {{"w", 4}}, .steps = 2};
  training.gradient = [](int, std::uint64_t, ParameterId) -> Values { return {8, 4, 2, 1}; };
  EXPECT_EQ(train(training).residuals[0][0], (Values{0, 6, 3, 1.5f}));

  training.recipe = parse_recipe("dense|clip:5");
  training.gradient = [](int, std::uint64_t, ParameterId) -> Values { return {6, 8, 0, 0}; };
  EXPECT_EQ(train(training).updates[0][0][0], (Values{3, 4, 0, 0}));
  training.ranks = 4;  // each rank's bound is half of it
  training.recipe = parse_recipe("dense|clip:10");
  EXPECT_EQ(train(training).updates[0][0][0], (Values{3, 4, 0, 0}));
}

// Squares that overflow f32 are no infinities.
TEST(Accumulation, ClipsGradientsWhoseSquaresOverflow) {
  Training training{.ranks = 1, .recipe = parse_recipe("dense|clip:5"), .parameters = {{"w", 40}}};
  training.gradient = [](int, std::uint64_t, ParameterId) {
    Values values(40);
    values[0] = 3e30f;
    values[39] = -4e30f;
    return values;
  };
  const Values update = train(training).updates[0][0][0];
  EXPECT_FLOAT_EQ(update[0], 3);
  EXPECT_FLOAT_EQ(update[39], -4);
}

// With three teams their sums overlap in part, and Algorithm 2 steers what comes out towards k.
TEST(Teams, TellWhatCameOutBeforeTheLastSelection) {
  const double k = 0.02 * 3000;
  const Trained trained = train(integers("spardl:2%,teams=3", 6, 30));
  for (const ParameterStats& stats : trained.stats[0]) {
    EXPECT_EQ(stats.out_of_teams, trained.stats[0][0].out_of_teams);
    EXPECT_GE(stats.out_of_teams, static_cast<double>(stats.delivered));
    EXPECT_NEAR(stats.out_of_teams, k, 0.5 * k);
  }
  EXPECT_EQ(train(integers("spardl:2%", 6, 2)).stats[0][0].out_of_teams, 0) << "there are no teams";
}

TEST(Skip, ContributesNothingAndKeepsTheResidual) {
  for (const char* const recipe : {"topk:2%|dense_below:0", "spardl:2%", "spardl:2%,teams=4", "gtopk:30%", "dense"}) {
    Training training = integers(recipe, 8, 4);
    training.gradient = [](int rank, std::uint64_t step, ParameterId id) -> Values {
      if (step > 0 && rank % 4 == 0) return {};
      const std::uint64_t sizes[] = {3000, 700, 10};
      return integer_gradient(sizes[id], rank, step, id);
    };
    const Trained trained = train(training);
    expect_same_updates(trained);
    for (ParameterId id = 0; id < 3; ++id) {
      ASSERT_EQ(delivered_and_kept(training, trained, id), sum_of_gradients(training, id)) << recipe;
    }
  }
}

// What rows that select drop on a rank that has not contributed yet is its residual all the same.
TEST(Skip, OfTheFirstStepLosesNothing) {
  for (const char* const recipe : {"spardl:2%", "spardl:2%,teams=4", "gtopk:30%"}) {
    Training training = integers(recipe, 8, 4);
    const GradientFunction gradient = training.gradient;
    training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
      return step == 0 && rank % 4 == 0 ? Values{} : gradient(rank, step, id);
    };
    const Trained trained = train(training);
    ASSERT_EQ(delivered_and_kept(training, trained, 0), sum_of_gradients(training, 0)) << recipe;
  }
}

TEST(Skip, ByAllRanksDeliversNothing) {
  Training training = integers("topk:2%|dense_below:0", 3, 2);
  const GradientFunction gradient = training.gradient;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    return step == 1 ? Values{} : gradient(rank, step, id);
  };
  const Trained trained = train(training);
  EXPECT_EQ(trained.updates[1][0][0], Values(3000));
}

TEST_P(EveryPreset, IsFinishedWithoutWaitingOnceATestSaysSo) {
  const Training training = integers((std::string(GetParam()->name) + "|dense_below:0").c_str(), 2);
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, training.parameters, training.recipe);
    start_all(synchronizer, training, communicator.rank(), 0);
    const double end = communicator.engine()->transport().now() + 20;
    for (ParameterId id = 0; id < 3; ++id) {
      while (!synchronizer.test(id) && communicator.engine()->transport().now() < end) {
      }
      EXPECT_TRUE(synchronizer.test(id)) << training.parameters[id].name;
    }
    for (ParameterId id = 0; id < 3; ++id) (void)synchronizer.finish(id);
  });
}

// The group's sum cannot start on a broken communicator: no member may be given what the last step delivered.
TEST(Fusion, OfAStepThatCouldNotStartFailsForAllMembers) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer =
        Synchronizer::make(communicator, {{"a", 4}, {"b", 4}}, parse_recipe("dense"), {.fuse_below = 100});
    Values gradient = {1, 2, 3, 4};
    const auto start = [&](ParameterId id) { synchronizer.start(id, std::span<const float>(gradient)); };
    start(0);
    start(1);
    synchronizer.end_step();
    for (ParameterId id = 0; id < 2; ++id) synchronizer.finish_into(id, gradient);
    start(0);
    break_communicator(communicator, Error(ErrorKind::system, "the test gives up"));
    EXPECT_THROW(start(1), Error);
    EXPECT_THROW(synchronizer.finish_into(0, gradient), Error);
  });
}

TEST(Fusion, TestsAMemberWhileAnotherIsInTheNextStep) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer =
        Synchronizer::make(communicator, {{"a", 4}, {"b", 4}}, parse_recipe("dense"), {.fuse_below = 100});
    const Values gradient(4, 1.0f);
    for (ParameterId id = 0; id < 2; ++id) synchronizer.start(id, std::span<const float>(gradient));
    synchronizer.end_step();
    (void)synchronizer.finish(0);
    synchronizer.start(0, std::span<const float>(gradient));
    EXPECT_TRUE(synchronizer.test(1));
    (void)synchronizer.finish(1);
    EXPECT_FALSE(synchronizer.test(0));
    synchronizer.end_step();
    (void)synchronizer.finish(0);
    (void)synchronizer.finish(1);
  });
}

// Large layers are searched, for as many values as buckets would have kept.
TEST(Selection, OfSoManyOfABucketIsAsLargeWhereItIsSearched) {
  Training training = integers("topk:16/512|dense_below:0|search_from:1", 2, 1);
  const Trained trained = train(training);
  EXPECT_GE(trained.stats[0][0].taken, 3000u * 16 / 512);
  EXPECT_LE(trained.stats[0][0].taken, 3000u * 16 / 512 * 2 + 2);
}

// 70,000 is finite and more than 16 bits hold.
TEST(SixteenBits, OfWhatIsTooLargeAreTheLargestThereAre) {
  for (const char* const recipe : {"topk:50%|dense_below:0|fp16", "topk:50%|dense_below:0|exchange:gather|fp16",
                                   "spardl:50%|dense_below:0|f16", "fp16"}) {
    Training training{.ranks = 2, .recipe = parse_recipe(recipe), .parameters = {{"weight", 4}}, .steps = 3};
    training.gradient = [](int, std::uint64_t step, ParameterId) {
      return step == 0 ? Values{70'000, -90'000, 1, 2} : Values(4, 0.5f);
    };
    const Trained trained = train(training);
    expect_same_updates(trained);
    for (const auto& step : trained.updates) {
      for (const float value : step[0][0]) EXPECT_TRUE(std::isfinite(value)) << recipe;
    }
    for (const float value : trained.residuals[0][0]) EXPECT_TRUE(std::isfinite(value)) << recipe;
  }
}

// Of 4 ranks the sum is more than 16 bits hold, and the mean is not. 30,000 has few enough bits to be exact.
TEST(SixteenBits, HoldMeansOfWhateverTheyHoldOfOneRank) {
  for (const char* const recipe : {"fp16", "dense|momentum:0.5|row:dense_split_allgather|fp16", "topk:100%|fp16",
                                   "topk:50%|dense_below:0|fp16", "topk:50%|dense_below:0|fp16|no_ef"}) {
    for (const int ranks : {1, 2, 4, 8}) {
      Training training{.ranks = ranks, .recipe = parse_recipe(recipe), .parameters = {{"weight", 4}}};
      training.gradient = [](int, std::uint64_t, ParameterId) { return Values{30'000, -65'504, 0, 0}; };
      EXPECT_EQ(train(training).updates[0][0][0], (Values{30'000, -65'504, 0, 0})) << recipe << ", " << ranks;
      training.ranks = 3 * ranks;
      EXPECT_NEAR(train(training).updates[0][0][0][0], 30'000, 30'000.0 / 2048) << recipe << ", " << 3 * ranks;
    }
  }
  Training training{.ranks = 4, .recipe = parse_recipe("fp16|aggregate:sum"), .parameters = {{"weight", 1}}};
  training.gradient = [](int, std::uint64_t, ParameterId) { return Values{30'000}; };
  EXPECT_EQ(train(training).updates[0][0][0][0], 120'000);
}

// Numbers of few bits, so that nothing else is lost.
TEST(SixteenBits, LeaveWhatTheyCannotHoldInTheResidual) {
  for (const char* const recipe : {"topk:50%|dense_below:0|fp16", "topk:50%|dense_below:0|exchange:gather|fp16",
                                   "spardl:50%|dense_below:0|f16", "oktopk:50%|f16", "gtopk:50%|f16"}) {
    for (const int ranks : {1, 2, 4}) {
      Training training{.ranks = ranks, .recipe = parse_recipe(recipe), .parameters = {{"weight", 8}}, .steps = 4};
      training.gradient = [](int, std::uint64_t step, ParameterId) {
        return step == 0 ? Values{70'000, -90'000, 128, 256, 0, 0, 0, 0} : Values(8);
      };
      const Trained trained = train(training);
      EXPECT_EQ(delivered_and_kept(training, trained, 0), sum_of_gradients(training, 0)) << recipe << ", " << ranks;
    }
  }
}

// Both gradients are finite and their sum is not.
TEST(NonFinite, SumsLeaveAccumulatorsAsTheyWere) {
  const float huge = 3e38f;
  for (const char* const recipe : {"spardl:50%|dense_below:0", "topk:50%|dense_below:0"}) {
    Training training{.ranks = 2, .recipe = parse_recipe(recipe), .parameters = {{"weight", 4}}, .steps = 1};
    training.options.non_finite = NonFinitePolicy::skip;
    training.gradient = [=](int, std::uint64_t, ParameterId) { return Values{huge, huge, 1, 2}; };
    const Trained trained = train(training);
    EXPECT_EQ(trained.updates[0][0][0], Values(4)) << recipe;
    for (const Values& residual : trained.residuals[0]) EXPECT_EQ(residual, (Values{huge, huge, 1, 2})) << recipe;
  }
}

TEST(NonFinite, ResidualsOfOneRankAreToldToAll) {
  Training training{
      .ranks = 2, .recipe = parse_recipe("topk:25%|dense_below:0"), .parameters = {{"weight", 4}}, .steps = 4};
  training.gradient = [](int rank, std::uint64_t, ParameterId) {
    return rank == 1 ? Values{3e38f, 3.1e38f, 0, 0} : Values(4, 1.0f);
  };
  const Trained trained = try_train(training);
  for (const std::exception_ptr& error : trained.errors) {
    EXPECT_NE(message_of(error).find("weight: "), std::string::npos) << message_of(error);
  }
}

// What grows beyond f32, wherever it is kept, and however it travels.
TEST(NonFinite, WhateverOutgrowsF32IsToldToAll) {
  struct Case {
    const char* recipe;
    const char* what;
  };
  const char* const kResidual = "its residual outgrew f32";
  const char* const kVelocity = "its velocity or residual outgrew f32";
  const char* const kSum = "a sum over ranks outgrew f32";
  const char* const kOuter = "a sum over ranks or the outer momentum outgrew f32";
  for (const NonFinitePolicy policy : {NonFinitePolicy::error, NonFinitePolicy::skip}) {
    for (const auto& [recipe, what] :
         {Case{"spardl:2%", kResidual}, Case{"oktopk:2%", kResidual}, Case{"gtopk:2%", kResidual},
          Case{"dense|row:topka|density:2%", kResidual}, Case{"dense|row:topkdsa|density:2%", kResidual},
          Case{"dgc:2%", kVelocity}, Case{"spardl:2%|momentum:0.9|masking", kVelocity},
          Case{"dense|momentum:0.9", kVelocity},
          Case{"topk:2%|dense_below:0|reuse:2|selector:trimmed_top_k", kResidual}, Case{"diloco", kOuter}}) {
      Training training{
          .ranks = 2, .recipe = parse_recipe(recipe), .parameters = {{"weight", 64, Role::hidden, 8}}, .steps = 8};
      training.options.non_finite = policy;
      const bool is_of_both = what == kOuter;  // whose sum must not be too large before it
      training.gradient = [=](int rank, std::uint64_t, ParameterId) {
        return is_of_both || rank == 1 ? Values(64, 1.2e38f) : Values(64, 1.0f);
      };
      const Trained trained = try_train(training);
      for (const std::exception_ptr& error : trained.errors) {
        const std::string message = message_of(error);
        EXPECT_NE(message.find("weight: "), std::string::npos) << recipe << ": " << message;
        EXPECT_NE(message.find(what), std::string::npos) << recipe << ": " << message;
      }
    }
  }
  Training training{.ranks = 2, .recipe = parse_recipe("dense"), .parameters = {{"weight", 4}}};
  training.gradient = [](int, std::uint64_t, ParameterId) { return Values(4, 3e38f); };
  for (const std::exception_ptr& error : try_train(training).errors) {
    EXPECT_NE(message_of(error).find(kSum), std::string::npos) << message_of(error);
  }
}

TEST(Order, OfStartsMayDifferOnEveryRank) {
  for (const char* const recipe : {"dense", "topk:2%|dense_below:0", "oktopk:2%", "qsgd:4", "powersgd"}) {
    Training training = integers(recipe, 5, 4);
    const Trained in_order = train(training);
    training.any_order = true;
    for (training.seed = 1; training.seed <= 6; ++training.seed) {
      const Trained trained = train(training);
      ASSERT_EQ(trained.updates, in_order.updates) << recipe << " with seed " << training.seed;
      ASSERT_EQ(trained.residuals, in_order.residuals);
    }
  }
}

TEST(NonFinite, IsAnErrorThatNamesParameterAndIndexOnAllRanks) {
  Training training = integers("topk:2%|dense_below:0", 3, 2);
  const GradientFunction gradient = training.gradient;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    Values values = gradient(rank, step, id);
    if (rank == 1 && step == 1 && id == 1) values[37] = std::numeric_limits<float>::infinity();
    return values;
  };
  const Trained trained = try_train(training);
  for (const std::exception_ptr& error : trained.errors) {
    EXPECT_NE(message_of(error).find("the gradient of output is not finite at index 37"), std::string::npos)
        << message_of(error);
  }
}

TEST(NonFinite, VoidsTheStepOnAllRanksAlikeWhereAsked) {
  for (const char* const recipe : {"topk:2%|dense_below:0", "dense"}) {
    Training training = integers(recipe, 4, 3);
    training.options.non_finite = NonFinitePolicy::skip;
    const GradientFunction gradient = training.gradient;
    training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
      Values values = gradient(rank, step, id);
      if (rank == 1 && step == 1 && id == 0) values[37] = std::nanf("");
      return values;
    };
    const Trained trained = train(training);
    expect_same_updates(trained);
    EXPECT_EQ(trained.updates[1][0][0], Values(3000));
    EXPECT_NE(trained.updates[2][0][0], Values(3000));
    // What was finite is still there, except that without error feedback a void step is lost.
    const std::string name = recipe;
    training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
      const bool is_lost = id == 0 && step == 1 && (rank == 1 || name == "dense");
      return is_lost ? Values{} : gradient(rank, step, id);
    };
    ASSERT_EQ(delivered_and_kept(training, trained, 0), sum_of_gradients(training, 0)) << recipe;
  }
}

// Whatever the exchange is: nothing is delivered, and what was finite stays where there is a residual.
TEST_P(EveryPreset, VoidsStepsThatAreNotFiniteOnAllRanksAlike) {
  Training training = integers("dense", 4, 3);
  training.recipe = GetParam()->recipe;
  training.recipe.dense_below = 0;
  training.options.non_finite = NonFinitePolicy::skip;
  const GradientFunction gradient = training.gradient;
  const auto damaged = [=](int rank, std::uint64_t step, ParameterId id) {
    Values values = gradient(rank, step, id);
    if (rank == 1 && step == 1 && id != 1) values[3] = std::nanf("");
    return values;
  };
  training.gradient = damaged;
  const Trained trained = train(training);
  expect_same_updates(trained);
  EXPECT_EQ(trained.updates[1][0][0], Values(3000));
  EXPECT_EQ(trained.updates[1][2][0], Values(10));
  EXPECT_NE(trained.updates[1][1][0], Values(700));
  EXPECT_NE(trained.updates[2][0][0], Values(3000));
  const Recipe& recipe = training.recipe;
  if (!keeps_residual(recipe) || recipe.momentum != 0 || recipe.decay != 1 || recipe.outer != OuterStep::none) return;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    return id == 0 && rank == 1 && step == 1 ? Values{} : gradient(rank, step, id);
  };
  const std::vector<double> has = delivered_and_kept(training, trained, 0), had = sum_of_gradients(training, 0);
  for (std::size_t i = 0; i < had.size(); ++i) ASSERT_NEAR(has[i], had[i], 0.05) << "at " << i;
}

TEST(Replicas, ThatDriftApartAreTold) {
  Training training = integers("noop", 3, 6);
  training.options.replica_check_every = 2;
  const GradientFunction gradient = training.gradient;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    return gradient(rank == 2 && step == 0 && id == 1 ? 2 : 0, step, id);
  };
  const Trained trained = try_train(training);
  for (const std::exception_ptr& error : trained.errors) {
    EXPECT_NE(message_of(error).find("different updates of output"), std::string::npos) << message_of(error);
  }
}

TEST(Replicas, ThatAreEqualPassTheCheckInAnyOrder) {
  for (const char* const recipe : {"topk:2%|dense_below:0", "qsgd:4", "spardl:2%", "three_lc"}) {
    Training training = integers(recipe, 4, 6);
    training.options.replica_check_every = 1;
    training.any_order = true;
    (void)train(training);
  }
}

// Steps of "dense" on three ranks, with weights that are their hash, until one throws: the step, and what it says.
std::pair<std::uint64_t, std::string> first_told(std::function<std::uint64_t(int rank, std::uint64_t step)> hash) {
  std::vector<std::pair<std::uint64_t, std::string>> told(3, {99, ""});
  run_threads(3, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"first", 3}, {"second", 2}}, parse_recipe("dense"),
                                                   {.weights_check_every = 2});
    Values first(3), second(2);
    const std::span<float> gradients[] = {first, second};
    for (std::uint64_t step = 0; step < 6; ++step) {
      if (synchronizer.wants_weights()) {
        const std::uint64_t hashes[] = {7, hash(communicator.rank(), step)};
        synchronizer.compare_weights(hashes);
      }
      const std::exception_ptr error = failure_of([&] { synchronizer.step(gradients); });
      if (!error) continue;
      told[static_cast<std::size_t>(communicator.rank())] = {step, message_of(error)};
      break;
    }
    barrier(communicator);  // it stays usable
  });
  EXPECT_EQ(told[1], told[0]);
  EXPECT_EQ(told[2], told[0]);
  return told[0];
}

TEST(Weights, that_differ_are_told_by_name_and_rank_in_the_step_that_compares_them) {
  const auto [at_once, text] = first_told([](int rank, std::uint64_t) { return rank == 2 ? 5 : 4; });
  EXPECT_EQ(at_once, 0u);
  EXPECT_NE(text.find("second is 4 on ranks 0, 1, is 5 on rank 2"), text.npos) << text;
  EXPECT_EQ(first_told([](int rank, std::uint64_t step) { return step >= 3 && rank == 0 ? 5 : 4; }).first, 4u);
}

TEST(Weights, that_are_alike_pass) {
  EXPECT_EQ(first_told([](int, std::uint64_t step) { return ~step; }).second, "");
}

TEST(Weights, are_refused_where_a_parameter_has_no_hash) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"w", 3}}, parse_recipe("dense"));
    EXPECT_FALSE(synchronizer.wants_weights());
    const std::exception_ptr error = failure_of([&] { synchronizer.compare_weights({}); });
    EXPECT_EQ(message_of(error), "0 hashes of weights for 1 parameters");
  });
}

TEST(Plan, SaysHowEachParameterTravelsAndWhy) {
  Training training = integers("redsync:1%|dense_below:100|search_from:2000", 2, 1);
  const std::vector<PlanRow> plan = train(training).plans[1];
  EXPECT_EQ(plan[0].how, "threshold_binary_search");
  EXPECT_EQ(plan[0].reason, "2000 values or more");
  EXPECT_DOUBLE_EQ(plan[0].density, 0.01);
  EXPECT_EQ(plan[1].how, "trimmed_top_k");
  EXPECT_EQ(plan[2].how, "dense");
  EXPECT_EQ(plan[2].reason, "fewer than 100 values");
  EXPECT_EQ(train(integers("dense", 2, 1)).plans[0][2].together, "hidden");
}

TEST(Plan, TakesMeasuredBoundariesThatAllRanksShare) {
  run_threads(3, [](Communicator& communicator) {
    Profile slow;
    slow.alpha_seconds = 0;
    slow.beta_seconds_per_byte = 1;
    communicator.set_profile(slow);
    Synchronizer synchronizer =
        Synchronizer::make(communicator, {{"w", 64}}, parse_recipe("redsync"), {.boundaries = Boundaries::measured});
    // Bytes are so dear that selecting pays from a few values on.
    EXPECT_LE(synchronizer.recipe().dense_below, 10u);
    EXPECT_NE(synchronizer.plan_text().find("RedSync at 3.5 GB/s: 128 KB and 4.0 MB"), std::string::npos)
        << synchronizer.plan_text();
    EXPECT_THROW((void)Synchronizer::make(communicator, {{"w", 64}}, parse_recipe("dense"),
                                          {.boundaries = Boundaries::measured}),
                 Error);
  });
}

// Members of a group share its bytes by size, and nothing is counted twice.
TEST(Report, CountsTheBytesOfAGroupOnce) {
  Training training{.ranks = 4, .recipe = parse_recipe("dense"), .parameters = {{"a", 60}, {"b", 30}, {"c", 10}}};
  training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
    return integer_gradient(sizes[id].size, rank, step, id);
  };
  const Trained together = train(training);
  training.parameters = {{"all", 100}};
  training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
    return integer_gradient(100, rank, step, id);
  };
  const Trained alone = train(training);
  std::uint64_t bytes = 0;
  for (const auto& by_rank : together.stats) bytes += by_rank.front().bytes_sent;
  EXPECT_EQ(bytes, alone.stats[0][0].bytes_sent);
  EXPECT_NEAR(static_cast<double>(together.stats[0][0].bytes_sent), 0.6 * static_cast<double>(bytes), 1);
}

TEST(Report, SaysWhatDenseExchangesWouldHaveTaken) {
  Training training = integers("topk:1%|dense_below:0", 4, 4);
  training.profile.beta_seconds_per_byte = 1e-6;
  const std::string report = train(training).reports[0];
  const std::size_t place = report.find("would have taken ");
  ASSERT_NE(place, std::string::npos) << report;
  // Four steps of 3710 values: at least 2·(P−1)/P of their bytes.
  EXPECT_GE(std::stod(report.substr(place + 17)), 4 * 3710 * 4 * 1.5 * 1e-6 * 0.99) << report;
  EXPECT_LE(std::stod(report.substr(place + 17)), 4 * 3710 * 4 * 1.5 * 1e-6 * 1.5) << report;
}

TEST(Report, IsTheSameOnAllRanksAndCountsBytes) {
  const Trained trained = train(integers("topk:1%|dense_below:0", 3, 4));
  EXPECT_EQ(trained.reports[1], trained.reports[0]);
  EXPECT_EQ(trained.reports[2], trained.reports[0]);
  EXPECT_NE(trained.reports[0].find("exchanges        12 of 1.484e+04 values, on 3 ranks"), std::string::npos)
      << trained.reports[0];
}

TEST(Stats, SayWhatAStepDid) {
  Training training = integers("topk:1%|dense_below:0", 2, 2);
  training.options.residual_norms = true;
  const Trained trained = train(training);
  const ParameterStats& stats = trained.stats[0][1];
  EXPECT_EQ(stats.step, 2u);
  EXPECT_EQ(stats.taken, 30u);
  EXPECT_GE(stats.delivered, 30u);
  EXPECT_LE(stats.delivered, 60u);
  EXPECT_GT(stats.bytes_sent, 0u);
  double squares = 0;
  for (const float value : trained.residuals[0][1]) squares += double{value} * value;
  EXPECT_NEAR(stats.residual_norm, std::sqrt(squares), 1e-6 * stats.residual_norm);
  EXPECT_NE(to_json({"a\"b", 10}, stats).find(R"("parameter":"a\"b")"), std::string::npos);
}

// Whatever form a sum comes in: four ranks that take 5 % each deliver 20 % at most.
TEST(Stats, CountTheValuesThatAreDelivered) {
  for (const char* const row : {"auto_sparse", "ssar_split_allgather", "dsar_split_allgather", "dense_ring"}) {
    for (const std::uint64_t fuse_below : {2000u, 0u}) {
      Training training = integers("topk:5%|dense_below:0", 4, 2);
      training.recipe.row = row;
      training.options.fuse_below = fuse_below;
      const Trained trained = train(training);
      for (ParameterId id = 0; id < 3; ++id) {
        const Values& update = trained.updates.back()[id][0];
        const auto delivered =
            static_cast<std::uint64_t>(std::ranges::count_if(update, [](float value) { return value != 0; }));
        const ParameterStats& stats = trained.stats[id][0];
        EXPECT_GE(stats.delivered, delivered) << row;
        EXPECT_LE(stats.delivered, 4 * stats.taken) << row;
      }
    }
  }
}

TEST(Registration, NamesTheFirstParameterThatDiffers) {
  SimWorld world({.ranks = 3});
  const Program program = [](Communicator& communicator) -> Task<> {
    std::vector<Parameter> parameters = {{"first", 10}, {"second", communicator.rank() == 2 ? 21u : 20u}, {"third", 5}};
    Task<Synchronizer> making = Synchronizer::await_make(communicator, std::move(parameters), Recipe{});
    co_await making;
  };
  for (const std::exception_ptr& error : world.try_run(program)) {
    EXPECT_NE(message_of(error).find("parameter 1 is second of 20 values, hidden, 0 rows on ranks 0, 1, "
                                     "is second of 21 values, hidden, 0 rows on rank 2"),
              std::string::npos)
        << message_of(error);
  }
}

TEST(Registration, RefusesNamesThatAreNotUnique) {
  run_threads(1, [](Communicator& communicator) {
    EXPECT_THROW((void)Synchronizer::make(communicator, {{"a", 1}, {"a", 2}}, Recipe{}), Error);
    EXPECT_THROW((void)Synchronizer::make(communicator, {{"", 1}}, Recipe{}), Error);
  });
}

std::string refusal_of(Communicator& communicator, std::uint32_t first_channel) {
  try {
    (void)Synchronizer::make(communicator, {{"c", 4}, {"d", 4}}, parse_recipe("dense"),
                             {.first_channel = first_channel});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "";
}

// Two parameters, control, a group, decisions and a log.
TEST(Channels, OfTwoSynchronizersAreRefusedWhereTheyOverlap) {
  run_threads(2, [](Communicator& communicator) {
    std::optional<Synchronizer> first = Synchronizer::make(communicator, {{"a", 4}, {"b", 4}}, parse_recipe("dense"));
    ASSERT_EQ(first->end_channel(), 7u);
    for (const std::uint32_t channel : {1u, 3u, 4u, 6u}) {
      const std::string why = refusal_of(communicator, channel);
      EXPECT_NE(why.find("overlap channels 1 to 6 of the same communicator, which a synchronizer of 2 parameters, the "
                         "first called a has: begin at 7"),
                std::string::npos)
          << why;
    }
    EXPECT_EQ(refusal_of(communicator, 7), "");

    // Both are in flight at once, and neither gets what is the other's.
    Synchronizer second = Synchronizer::make(communicator, {{"a", 4}, {"b", 4}}, parse_recipe("dense"),
                                             {.first_channel = first->end_channel()});
    for (ParameterId id = 0; id < 2; ++id) {
      first->start(id, std::span<const float>(Values(4, 1.0f)));
      second.start(id, std::span<const float>(Values(4, 66.0f)));
    }
    first->end_step();
    second.end_step();
    EXPECT_EQ(Stream<float>(second.finish(0).stream).to_vector(), Values(4, 66.0f));
    EXPECT_EQ(Stream<float>(first->finish(0).stream).to_vector(), Values(4, 1.0f));
    (void)first->finish(1);
    (void)second.finish(1);

    // Rank 1 alone still has the first one: rank 0 is told.
    if (communicator.rank() == 0) first.reset();
    EXPECT_NE(refusal_of(communicator, 1).find("which a synchronizer of 2 parameters"), std::string::npos);
    first.reset();
    EXPECT_EQ(refusal_of(communicator, 1), "");
  });
}

TEST(Channels, AreTakenOnTheCommunicatorThatASynchronizerMovesTo) {
  run_threads(2, [](Communicator& communicator) {
    Communicator other = communicator.split(0);
    const std::vector<Parameter> parameters = {{"a", 4}};
    Synchronizer first = Synchronizer::make(communicator, parameters, parse_recipe("dense"));
    std::optional<Synchronizer> there = Synchronizer::make(other, parameters, parse_recipe("dense"));
    EXPECT_THROW(first.move_to(other, 0), Error);
    there.reset();
    first.move_to(other, 0);
    EXPECT_EQ(refusal_of(communicator, 1), "");
    EXPECT_NE(refusal_of(other, 1), "");
    first.move_to(other, 0);
    EXPECT_NE(refusal_of(other, 1), "");
  });
}

TEST(Misuse, IsToldAtOnce) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"w", 2}}, parse_recipe("dense"));
    const Values gradient = {1, 2};
    EXPECT_THROW((void)synchronizer.finish(0), Error);
    EXPECT_THROW(synchronizer.start(7, std::span(gradient)), Error);
    EXPECT_THROW(synchronizer.start(0, std::span(gradient).first(1)), Error);
    synchronizer.start(0, std::span(gradient));
    EXPECT_THROW(synchronizer.start(0, std::span(gradient)), Error);
    EXPECT_EQ(Stream<float>(synchronizer.finish(0).stream).to_vector(), gradient);
  });
}

// An exchange that goes on when its synchronizer is gone must not use what went with it; sanitizers would tell.
TEST(Misuse, ASynchronizerMayGoWhileItsExchangesAreInFlight) {
  std::vector<Values> updates(2);
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"w", 100}}, parse_recipe("topk:10%|dense_below:0"));
    const Values gradient = integer_gradient(100, communicator.rank(), 0, 0);
    synchronizer.start(0, std::span<const float>(gradient));
    if (communicator.rank() == 1) {
      { const Synchronizer gone = std::move(synchronizer); }
      barrier(communicator);
      return;
    }
    updates[0].resize(100);
    EXPECT_TRUE(synchronizer.finish_into(0, updates[0]));
    barrier(communicator);
  });
  EXPECT_NE(updates[0], Values(100));
}

// Of one rank, whose sum is what it sent: what is written between start and finish tells where that lies.
TEST(LentGradients, TravelFromWhereTheyAre) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"w", 2}}, parse_recipe("dense"));
    Values gradient = {1, 2};
    synchronizer.start(0, std::span<const float>(gradient));
    gradient = {7, 8};
    EXPECT_EQ(Stream<float>(synchronizer.finish(0).stream).to_vector(), (Values{1, 2}));
    synchronizer.start_lent(0, gradient);
    gradient[0] = 9;
    EXPECT_TRUE(synchronizer.finish_into(0, gradient));
    EXPECT_EQ(gradient, (Values{9, 8}));
  });
}

// Replaces the gradients of some steps by their updates, on a rank that lends them.
std::vector<Values> updates_of_lent(Communicator& communicator, const Training& training) {
  communicator.start_progress_thread();
  Synchronizer synchronizer = Synchronizer::make(communicator, training.parameters, training.recipe, training.options);
  std::vector<Values> values(training.parameters.size());
  for (std::uint64_t step = 0; step < training.steps; ++step) {
    for (ParameterId id = 0; id < values.size(); ++id) {
      values[id] = training.gradient(communicator.rank(), step, id);
      synchronizer.start_lent(id, values[id]);
    }
    synchronizer.end_step();
    for (ParameterId id = 0; id < values.size(); ++id) EXPECT_TRUE(synchronizer.finish_into(id, values[id]));
  }
  return values;
}

TEST(LentGradients, GiveTheBitsOfCopiedOnesBeUpdatesWrittenInTheirPlaceOrNot) {
  for (const char* const recipe : {"dense", "fp16", "topk:2%|dense_below:0", "three_lc", "dgc:2%", "diloco"}) {
    for (const std::uint64_t fuse_below : {2000u, 0u}) {
      Training training = integers(recipe, 3, 3);
      training.options = {.fuse_below = fuse_below, .reproducible = true};
      const Trained copied = train(training);
      std::vector<std::vector<Values>> lent(3);
      run_threads(3, [&](Communicator& communicator) {
        lent[static_cast<std::size_t>(communicator.rank())] = updates_of_lent(communicator, training);
      });
      for (std::size_t rank = 0; rank < 3; ++rank) {
        for (ParameterId id = 0; id < 3; ++id) {
          EXPECT_EQ(lent[rank][id], copied.updates.back()[id][rank]) << recipe << ", fused below " << fuse_below;
        }
      }
    }
  }
}

// Its exchange waits for the other rank, which has not started yet, so that it ends here; sanitizers would tell if it
// looked at the gradient later.
TEST(LentGradients, AreLeftAloneOnceTheSynchronizerIsGone) {
  std::latch is_gone(1);
  run_threads(2, [&](Communicator& communicator) {
    communicator.start_progress_thread();
    std::optional<Synchronizer> synchronizer = Synchronizer::make(communicator, {{"w", 1000}}, parse_recipe("dense"));
    Values gradient = integer_gradient(1000, communicator.rank(), 0, 0);
    if (communicator.rank() == 1) {
      synchronizer->start_lent(0, gradient);
      synchronizer.reset();
      Values().swap(gradient);
      is_gone.count_down();
      return;
    }
    is_gone.wait();
    const auto step = [&] {
      synchronizer->start_lent(0, gradient);
      (void)synchronizer->finish(0);
    };
    EXPECT_THROW(step(), Error);
  });
}

TEST(Noop, GivesEachRankItsOwnGradient) {
  const Training training = integers("noop", 2, 1);
  const Trained trained = train(training);
  EXPECT_EQ(trained.updates[0][0][1], training.gradient(1, 0, 0));
  EXPECT_EQ(trained.stats[0][0].bytes_sent, 0u);
}

TEST(OuterStep, FollowsNesterovAndMomentumByHand) {
  Training training{
      .recipe = parse_recipe("diloco|outer_rate:0.5|outer_momentum:0.5"), .parameters = {{"w", 2}}, .steps = 2};
  training.gradient = [](int rank, std::uint64_t, ParameterId) -> Values { return {rank == 0 ? 4.f : 12.f, 0}; };
  // The mean is 8. m = 8, then 12; 0.5·(8 + 4) = 6, then 0.5·(8 + 6) = 7.
  EXPECT_EQ(train(training).updates[0][0][0], (Values{6, 0}));
  EXPECT_EQ(train(training).updates[1][0][1], (Values{7, 0}));
  training.recipe = parse_recipe("diloco|outer:momentum|outer_rate:0.5|outer_momentum:0.5");
  EXPECT_EQ(train(training).updates[1][0][1], (Values{6, 0}));
  training.recipe = parse_recipe("local2|outer_rate:0.5");
  EXPECT_EQ(train(training).updates[1][0][1], (Values{4, 0}));
}

TEST(LocalSteps, SayWhenAnExchangeIsDue) {
  std::vector<bool> due;
  run_threads(1, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"w", 2}}, parse_recipe("diloco:every=3"));
    for (int step = 0; step < 6; ++step) due.push_back(synchronizer.count_local_step());
  });
  EXPECT_EQ(due, (std::vector<bool>{false, false, true, false, false, true}));
}

template <class V>
Values residual_after_two_steps_of(std::vector<V> gradient) {
  Values residual;
  run_threads(1, [&](Communicator& communicator) {
    Synchronizer synchronizer =
        Synchronizer::make(communicator, {{"w", gradient.size()}}, parse_recipe("topk:0.3|dense_below:0"));
    for (int step = 0; step < 2; ++step) {
      synchronizer.start(0, std::span<const V>(gradient));
      (void)synchronizer.finish(0);
    }
    residual = copy_of(synchronizer.residual(0));
  });
  return residual;
}

TEST(Gradients, Of16BitsAreAccumulatedIn32) {
  // 1.5, then 3 at the first place: -2 leaves in the first step, 3 in the second.
  EXPECT_EQ(residual_after_two_steps_of<Half>({Half(1.5f), Half(-2.0f), Half(0.25f)}), (Values{0, -2, 0.5f}));
  EXPECT_EQ(residual_after_two_steps_of<Bfloat16>({Bfloat16(1.5f), Bfloat16(-2.0f), Bfloat16(0.25f)}),
            (Values{0, -2, 0.5f}));
}

TEST(OnThreads, StartsInAnyOrderWithAProgressThread) {
  for (const char* const recipe :
       {"dense", "topk:2%|dense_below:0", "spardl:2%", "three_lc", "powersgd|dense_below:0"}) {
    Training training = integers(recipe, 4, 4);
    const Trained expected = train(training);
    training.any_order = true;
    std::vector<std::vector<Values>> last(4, std::vector<Values>(3));
    run_threads(4, [&](Communicator& communicator) {
      communicator.start_progress_thread();
      Synchronizer synchronizer = Synchronizer::make(communicator, training.parameters, training.recipe);
      const auto rank = static_cast<std::size_t>(communicator.rank());
      for (std::uint64_t step = 0; step < training.steps; ++step) {
        start_all(synchronizer, training, communicator.rank(), step);
        for (ParameterId id = 0; id < 3; ++id) {
          last[rank][id].resize(training.parameters[id].size);
          synchronizer.finish_into(id, last[rank][id]);
        }
      }
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (ParameterId id = 0; id < 3; ++id) ASSERT_EQ(last[rank][id], expected.updates.back()[id][rank]) << recipe;
    }
  }
}

TEST(Step, ReplacesGradientsByUpdatesAndDropsThoseOfUnusedParameters) {
  std::vector<Values> first(2), second(2);
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"a", 2}, {"b", 1}}, parse_recipe("dense"));
    const auto rank = static_cast<std::size_t>(communicator.rank());
    first[rank] = {2, 4};
    second[rank] = {6};
    const std::span<float> gradients[] = {first[rank], rank == 0 ? std::span<float>(second[rank]) : std::span<float>()};
    synchronizer.step(gradients);
    EXPECT_EQ(synchronizer.steps(), 1u);
  });
  EXPECT_EQ(first[1], (Values{2, 4}));
  EXPECT_EQ(second[0], Values{3});
  EXPECT_EQ(second[1], Values{6});
}

}  // namespace
}  // namespace tulle::gradient
