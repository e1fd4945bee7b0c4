// What ranks decide while training goes on: layers that travel whole, and densities that follow energy.
#include "gradient/adaptive_plan.hpp"
#include "gradient/energy.hpp"
#include "gradient/training.hpp"
#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;
using Way = AdaptivePlan::Way;

// Two layers that should take 1 and 4 ms by the recipe, 2 and 2 ms whole.
AdaptivePlan two_layers(bool is_frozen = false) { return AdaptivePlan({{1e-3, 2e-3}, {4e-3, 2e-3}}, is_frozen); }

// Makes steps that cost what `seconds` says of the way in use, on two ranks that both see it, until it is settled.
void try_ways(AdaptivePlan& plan, const AdaptivePlan::WaySeconds& seconds) {
  const double no_computing[2] = {};
  for (int step = 0; step < 100 && !plan.is_in_use(); ++step) {
    const double cost = plan.way() == Way::recipe  ? seconds.recipe
                        : plan.way() == Way::whole ? seconds.whole
                                                   : seconds.mixed;
    if (!plan.note(step % 4 == 0 ? 100 * cost : cost, no_computing)) continue;
    std::vector<double> sums = plan.numbers();
    for (double& sum : sums) sum *= 2;
    plan.decide(sums, 2);
  }
  EXPECT_TRUE(plan.is_in_use());
}

TEST(AdaptivePlan, TakesUpTheFastestOfThreeWaysAndLeavesOutFirstSteps) {
  AdaptivePlan plan = two_layers();
  EXPECT_FALSE(plan.is_whole(0) || plan.is_whole(1));
  try_ways(plan, {.recipe = 5e-3, .whole = 4e-3, .mixed = 3e-3});
  EXPECT_EQ(plan.way(), Way::mixed);
  EXPECT_DOUBLE_EQ(plan.way_seconds().whole, 4e-3);
  EXPECT_FALSE(plan.is_whole(0));
  EXPECT_TRUE(plan.is_whole(1));

  plan = two_layers();
  try_ways(plan, {.recipe = 5e-3, .whole = 4e-3, .mixed = 6e-3});  // the model was wrong about the mix
  EXPECT_EQ(plan.way(), Way::whole);
  EXPECT_TRUE(plan.is_whole(0) && plan.is_whole(1));
}

TEST(AdaptivePlan, PrefersTheRecipeWhereTheOthersAreFasterByNoiseAlone) {
  AdaptivePlan plan = two_layers();
  try_ways(plan, {.recipe = 5e-3, .whole = 4.95e-3, .mixed = 4.9e-3});
  EXPECT_EQ(plan.way(), Way::recipe);
}

// Waiting that back-propagation hides does not count, so that computing decides.
TEST(AdaptivePlan, ScalesTheModelByWhatStepsTook) {
  AdaptivePlan plan = two_layers();
  const double selecting[2] = {5e-4, 5e-4}, nothing[2] = {};
  while (plan.way() == Way::recipe) {
    if (plan.note(1e-3, selecting)) plan.decide(plan.numbers(), 1);
  }
  while (plan.way() == Way::whole && !plan.is_in_use()) {
    if (plan.note(1e-9, nothing)) plan.decide(plan.numbers(), 1);
  }
  EXPECT_NEAR(plan.layer_seconds(0).recipe, 5e-4, 1e-12);
  EXPECT_LT(plan.layer_seconds(0).whole, 1e-9);
  EXPECT_EQ(plan.way(), Way::whole);
}

TEST(AdaptivePlan, BeginsAnotherRoundWhenTrialsAreASmallShareOfSteps) {
  AdaptivePlan plan = two_layers();
  try_ways(plan, {.recipe = 1e-3, .whole = 11e-3});
  const double no_computing[2] = {};
  std::size_t used = 0;
  for (; plan.is_in_use(); ++used) EXPECT_FALSE(plan.note(1e-3, no_computing));
  // A mix was not worth a trial; the steps of 11 ms took 4·10 ms beyond the recipe's, which are 2 % of 2000 ms.
  EXPECT_NEAR(static_cast<double>(used), 2000, 1);
  EXPECT_EQ(plan.way(), Way::recipe);
}

TEST(AdaptivePlan, IsDecidedByTheModelAloneWhereItIsFrozen) {
  AdaptivePlan plan = two_layers(true);
  const double no_computing[2] = {};
  for (int step = 0; step < 50; ++step) {
    EXPECT_FALSE(plan.note(1, no_computing));
    EXPECT_FALSE(plan.is_whole(0));
    EXPECT_TRUE(plan.is_whole(1));
  }
}

TEST(AdaptivePlan, IsSavedAndRefusesWhatIsNoneOfItsOwn) {
  AdaptivePlan plan = two_layers();
  try_ways(plan, {.recipe = 5e-3, .whole = 4e-3, .mixed = 3e-3});
  AdaptivePlan loaded = two_layers();
  loaded.restore(plan.saved());
  EXPECT_EQ(loaded.saved(), plan.saved());
  EXPECT_TRUE(loaded.is_whole(1));
  AdaptivePlan three({{1, 1}, {1, 1}, {1, 1}}, false);
  for (const std::string& text : {plan.saved(), std::string("{"), std::string("{}")}) {
    EXPECT_THROW(three.restore(text), Error) << text;
    EXPECT_FALSE(three.is_in_use());
  }
  std::string endless = plan.saved();
  const std::size_t at = endless.find(R"("steps_left":)") + 13;
  endless.replace(at, endless.find(',', at) - at, "1e99");
  EXPECT_THROW(loaded.restore(endless), Error);
  EXPECT_EQ(loaded.saved(), plan.saved());
}

TEST(Energy, NeedsAsFewValuesAsCarryIt) {
  Values values(1000, 0.0f);
  values[17] = 8;  // 64 of 100
  values[400] = -6;
  EXPECT_NEAR(density_for_energy(values, 0.6), 0.94 / 1000, 1e-4);  // a part of the first one, but one at least
  EXPECT_NEAR(density_for_energy(values, 0.99), 2.0 / 1000, 1e-4);
  EXPECT_DOUBLE_EQ(density_for_energy(Values(1000, 0.5f), 1), 1);
  EXPECT_NEAR(density_for_energy(Values(1000, -3), 0.25), 0.25, 1e-9);
  EXPECT_DOUBLE_EQ(density_for_energy(Values(1000), 0.5), 1.0 / 1000);
  EXPECT_DOUBLE_EQ(density_for_energy(Values(), 0.5), 1);
}

TEST(Energy, OfManyValuesIsThatOfASample) {
  const Values few = float_gradient(1 << 18, 0, 0, 0);
  Values many = float_gradient(1 << 20, 0, 0, 0);
  std::fill(many.begin(), many.begin() + (1 << 19), 0.0f);  // all is in the other half
  for (const double share : {0.3, 0.9}) {
    const double expected = density_for_energy(few, share) / 2;
    EXPECT_NEAR(density_for_energy(many, share), expected, 0.03 * expected);
  }
}

// A tenth of the values carries nearly everything on rank 0, a fifth on rank 1.
Training with_energy(const char* recipe) {
  Training training{.ranks = 2, .recipe = parse_recipe(recipe), .parameters = {{"w", 1000}}, .steps = 3};
  training.gradient = [](int rank, std::uint64_t step, ParameterId) {
    Values values(1000, 0.001f);
    for (std::size_t i = step; i < 1000; i += rank == 0 ? 10 : 5) values[i] = i % 2 == 0 ? 4.0f : -4.0f;
    return values;
  };
  return training;
}

TEST(Energy, SaysFromTheNextStepOnHowDenseALayerIsOnAllRanks) {
  for (const char* const recipe : {"topk:50%|dense_below:0|energy:0.999", "spardl:50%|energy:0.999",
                                   "topk:50%|dense_below:0|energy:0.999|momentum:0.5"}) {
    Training training = with_energy(recipe);
    training.steps = 1;
    EXPECT_EQ(train(training).plans[0][0].density, train(training).plans[1][0].density);
    EXPECT_NEAR(train(training).plans[0][0].density, 0.15, 0.01) << recipe;  // the mean of both ranks
    training.steps = 2;
    const Trained trained = train(training);
    expect_same_updates(trained);
    if (training.recipe.exchange == Exchange::sum) {
      EXPECT_NEAR(static_cast<double>(trained.stats[0][0].taken), 150, 15) << recipe;
    }
  }
}

// Without time to hide behind, no more than the recipe's density is sent; with `reproducible` the clock does not count.
TEST(Energy, SendsMoreThanTheDensityOnlyAsFarAsItHides) {
  Training training = with_energy("topk:1%|dense_below:0|energy:0.999");
  EXPECT_EQ(train(training).stats[0][1].taken, 10u);
  training.options.reproducible = true;
  EXPECT_NEAR(static_cast<double>(train(training).stats[0][1].taken), 150, 15);
}

TEST(Energy, GoesByTheRanksThatHaveAGradient) {
  Training training = with_energy("topk:50%|dense_below:0|energy:0.999");
  const GradientFunction gradient = training.gradient;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    return rank == 1 ? Values{} : gradient(rank, step, id);
  };
  EXPECT_NEAR(train(training).plans[1][0].density, 0.1, 0.01);
}

Training layers(const char* recipe, const Profile& profile, std::uint64_t steps) {
  Training training{.ranks = 4, .recipe = parse_recipe(recipe), .steps = steps, .profile = profile};
  training.parameters = {{"large", 60'000}, {"middle", 3000}, {"bias", 10}};
  training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
    const std::uint64_t sizes[] = {60'000, 3000, 10};
    return integer_gradient(sizes[id], rank, step, id);
  };
  return training;
}

// Bytes cost nothing beside messages and what sparse kernels do, and the other way round.
Profile dear_computing() {
  Profile profile;
  profile.beta_seconds_per_byte = 1e-13;
  profile.gamma_sparse_seconds = 1e-6;
  return profile;
}
Profile dear_bytes() {
  Profile profile;
  profile.beta_seconds_per_byte = 1e-7;
  return profile;
}

constexpr std::uint64_t kAllTrials = 3 * AdaptivePlan::kTrialSteps + 1;

TEST(Adaptive, SendsLayersWholeWhereThatIsFasterAndSaysSo) {
  const Trained whole = train(layers("adaptive:topk:20%|dense_below:0", dear_computing(), kAllTrials));
  expect_same_updates(whole);
  EXPECT_EQ(whole.stats[0][0].route, "dense");
  EXPECT_EQ(whole.plans[0][0].how, "dense");
  EXPECT_NE(whole.plans[0][0].reason.find("adaptive"), std::string::npos) << whole.plans[0][0].reason;
  EXPECT_NE(whole.reports[0].find("in use"), std::string::npos) << whole.reports[0];
  EXPECT_NE(whole.reports[0].find("large: whole"), std::string::npos) << whole.reports[0];
  EXPECT_EQ(whole.reports[3], whole.reports[0]);

  const Trained selected = train(layers("adaptive:topk:1%|dense_below:0", dear_bytes(), kAllTrials));
  EXPECT_EQ(selected.stats[0][0].route, "selected");
  EXPECT_NE(selected.reports[0].find("no layer travels whole"), std::string::npos) << selected.reports[0];
}

TEST(Adaptive, TriesTheRecipeFirstAndThenEveryLayerWhole) {
  for (std::uint64_t step = 1; step <= 2 * AdaptivePlan::kTrialSteps; ++step) {
    const Trained trained = train(layers("adaptive:topk:1%|dense_below:0", dear_bytes(), step));
    EXPECT_EQ(trained.stats[0][0].route, step <= AdaptivePlan::kTrialSteps ? "selected" : "dense") << step;
    const Values nothing(60'000);
    EXPECT_EQ(trained.residuals[0][0] == nothing, step > AdaptivePlan::kTrialSteps) << step;
  }
}

TEST(Adaptive, LosesNothingInAnyOrderOfStarts) {
  for (const char* const recipe : {"adaptive:topk:2%|dense_below:0", "adaptive:spardl:2%", "adaptive:three_lc"}) {
    Training training = layers(recipe, dear_computing(), kAllTrials);
    training.any_order = true;
    for (training.seed = 1; training.seed <= 3; ++training.seed) {
      const Trained trained = train(training);
      expect_same_updates(trained);
      for (ParameterId id = 0; id < 2; ++id) {
        std::vector<double> had(training.parameters[id].size), has(had.size());
        for (std::uint64_t step = 0; step < training.steps; ++step) {
          for (int rank = 0; rank < 4; ++rank) {
            const Values gradient = training.gradient(rank, step, id);
            for (std::size_t i = 0; i < had.size(); ++i) had[i] += gradient[i];
          }
          for (std::size_t i = 0; i < has.size(); ++i) has[i] += 4 * double{trained.updates[step][id][0][i]};
        }
        for (const Values& residual : trained.residuals[id]) {
          for (std::size_t i = 0; i < has.size(); ++i) has[i] += residual[i];
        }
        for (std::size_t i = 0; i < has.size(); ++i) ASSERT_NEAR(has[i], had[i], 0.1) << recipe << " at " << i;
      }
    }
  }
}

TEST(Adaptive, IsFrozenWhereStepsShallBeReproducible) {
  Training training = layers("adaptive:topk:20%|dense_below:0", dear_computing(), 1);
  training.options.reproducible = true;
  for (training.steps = 1; training.steps <= kAllTrials; training.steps += 3) {
    EXPECT_EQ(train(training).stats[0][0].route, "dense");
  }
  training.profile = dear_bytes();
  EXPECT_EQ(train(training).stats[0][0].route, "selected");
}

// What a mix of ways may be in one group: some layers whole, others by the recipe.
TEST(Adaptive, PacksLayersThatTravelWholeAsDenseDoes) {
  for (const char* const recipe : {"adaptive:three_lc", "adaptive:topk:50%|dense_below:0"}) {
    Training training = layers(recipe, dear_computing(), 1);
    training.options.reproducible = true;
    training.parameters.clear();
    for (int i = 0; i < 9; ++i) training.parameters.push_back({"p" + std::to_string(i), 20u + 40u * unsigned(i % 3)});
    training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
      return integer_gradient(sizes[id].size, rank, step, id);
    };
    const Trained adaptive = train(training);
    training.recipe = parse_recipe("dense");
    const Trained dense = train(training);
    for (std::size_t id = 0; id < training.parameters.size(); ++id) {
      EXPECT_EQ(adaptive.plans[0][id].how, "dense") << recipe;
      EXPECT_EQ(adaptive.plans[0][id].together, dense.plans[0][id].together) << recipe;
      EXPECT_EQ(adaptive.stats[id][0].bytes_sent, dense.stats[id][0].bytes_sent) << recipe;
    }
    EXPECT_EQ(adaptive.updates, dense.updates) << recipe;
  }
}

TEST(Adaptive, TellsWhoeverBeginsAStepBeforeTheLastOneHasEnded) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"a", 2}, {"b", 2}},
                                                   parse_recipe("adaptive:topk:50%|dense_below:0"), {.fuse_below = 0});
    const Values gradient = {1, 2};
    synchronizer.start(0, std::span(gradient));
    (void)synchronizer.finish(0);
    EXPECT_THROW(synchronizer.start(0, std::span(gradient)), Error);
    synchronizer.start(1, std::span(gradient));
    (void)synchronizer.finish(1);
    EXPECT_NO_THROW(synchronizer.start(0, std::span(gradient)));
    (void)synchronizer.finish(0);
  });
}

}  // namespace
}  // namespace tulle::gradient
