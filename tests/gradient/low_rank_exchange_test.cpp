// powersgd: recipes that send matrices as products of two thin ones.
#include <algorithm>
#include <cmath>

#include "gradient/training.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

constexpr std::uint64_t kRows = 24, kColumns = 40;

Training matrices(const char* recipe, int ranks, std::uint64_t steps) {
  Training training{.ranks = ranks, .recipe = parse_recipe(recipe), .steps = steps};
  training.parameters = {{"w", kRows * kColumns, Role::hidden, kRows}, {"bias", 7}};
  training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
    return float_gradient(sizes[id].size, rank, step, id);
  };
  return training;
}

double norm_of(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

TEST(PowerSgd, LosesNothingOverStepsAlsoWhereRanksSkip) {
  for (const char* const recipe : {"powersgd:2", "powersgd:3|aggregate:sum"}) {
    Training training = matrices(recipe, 4, 5);
    const GradientFunction gradient = training.gradient;
    training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
      return rank == 2 && step == 3 ? Values{} : gradient(rank, step, id);
    };
    const Trained trained = train(training);
    expect_same_updates(trained);
    const double factor = training.recipe.aggregate == Aggregate::mean ? 4 : 1;
    std::vector<double> missing(kRows * kColumns);
    for (std::uint64_t step = 0; step < training.steps; ++step) {
      for (int rank = 0; rank < 4; ++rank) {
        const Values given = training.gradient(rank, step, 0);
        for (std::size_t i = 0; i < given.size(); ++i) missing[i] += given[i];
      }
      for (std::size_t i = 0; i < missing.size(); ++i) missing[i] -= factor * trained.updates[step][0][0][i];
    }
    double kept = 0;
    for (const Values& residual : trained.residuals[0]) {
      for (std::size_t i = 0; i < missing.size(); ++i) missing[i] -= residual[i];
      kept += norm_of(residual);
    }
    for (const double value : missing) ASSERT_NEAR(value, 0, 1e-4) << recipe;
    EXPECT_GT(kept, 1) << "the matrices have a higher rank";
  }
}

// Rank 1 says all about a matrix of rank 1, in the first step already.
TEST(PowerSgd, DeliversAMatrixOfItsRankWhole) {
  Training training = matrices("powersgd:1", 3, 1);
  training.gradient = [](int, std::uint64_t, ParameterId id) {
    Values values(id == 0 ? kRows * kColumns : 7, 1.0f);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i / kColumns + 1) * static_cast<float>(i % kColumns + 2);
    }
    return values;
  };
  const Trained trained = train(training);
  const Values gradient = training.gradient(0, 0, 0);
  for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(trained.updates[0][0][0][i], gradient[i], 1e-2);
  EXPECT_LT(norm_of(trained.residuals[0][0]), 1e-4 * norm_of(gradient));
  // What is no matrix travels whole.
  EXPECT_EQ(trained.plans[0][1].how, "dense");
  EXPECT_EQ(trained.plans[0][0].how, "low_rank 1");
}

// The same gradient in every step: from where the last step ended the next one finds the main directions better.
TEST(PowerSgd, StartsWarm) {
  Training training = matrices("powersgd:1|no_ef", 2, 8);
  training.gradient = [](int, std::uint64_t, ParameterId id) {
    return float_gradient(id == 0 ? kRows * kColumns : 7, 0, 0, id);
  };
  const Trained trained = train(training);
  const Values gradient = training.gradient(0, 0, 0);
  const auto error_after = [&](std::uint64_t step) {
    Values difference = trained.updates[step][0][0];
    for (std::size_t i = 0; i < gradient.size(); ++i) difference[i] -= gradient[i];
    return norm_of(difference);
  };
  EXPECT_LT(error_after(7), error_after(0));
}

// A frozen layer: what is left of it shrinks from step to step, and the factors with it, below every number.
TEST(PowerSgd, StaysFiniteWhereGradientsBecomeZero) {
  Training training = matrices("powersgd:2", 2, 60);
  const GradientFunction gradient = training.gradient;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    Values values = gradient(rank, step, id);
    if (step >= 3) std::ranges::fill(values, 0.0f);
    return values;
  };
  const Trained trained = train(training);
  expect_same_updates(trained);
  for (const auto& step : trained.updates) ASSERT_TRUE(std::isfinite(norm_of(step[0][0])));
  Values left = trained.residuals[0][0];
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += trained.residuals[0][1][i];
  EXPECT_LT(norm_of(left), 1e-3) << "60 steps deliver what three have left: residuals cancel";
}

TEST(PowerSgd, DeliversGradientsOfAnyScale) {
  for (const float scale : {1e-36f, 1e-30f, 1e-21f, 1e18f, 1e30f, 1e34f}) {
    Training training = matrices("powersgd:2", 3, 12);
    const GradientFunction gradient = training.gradient;
    const Trained wanted = train(training);
    training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
      Values values = gradient(rank, step, id);
      for (float& value : values) value *= scale;
      return values;
    };
    const Trained trained = train(training);
    expect_same_updates(trained);
    for (std::size_t step = 0; step < 12; ++step) {
      Values scaled = trained.updates[step][0][0];
      for (float& value : scaled) value /= scale;
      const double length = norm_of(wanted.updates[step][0][0]);
      for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] -= wanted.updates[step][0][0][i];
      ASSERT_LT(norm_of(scaled), 1e-3 * length) << "scale " << scale << ", step " << step;
    }
  }
}

// Products of the largest gradients leave f32. Every rank is told, or skips the step and starts from a new factor.
TEST(PowerSgd, TellsOfProductsThatOverflowAndGoesOnAfterThem) {
  for (const NonFinitePolicy policy : {NonFinitePolicy::error, NonFinitePolicy::skip}) {
    Training training = matrices("powersgd:2|no_ef", 3, 4);
    training.options.non_finite = policy;
    const GradientFunction gradient = training.gradient;
    training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
      return step == 1 && id == 0 ? Values(kRows * kColumns, 3e38f) : gradient(rank, step, id);
    };
    const Trained trained = try_train(training);
    for (const std::exception_ptr& error : trained.errors) {
      EXPECT_EQ(message_of(error).empty(), policy == NonFinitePolicy::skip) << message_of(error);
    }
    if (policy == NonFinitePolicy::error) continue;
    expect_same_updates(trained);
    EXPECT_EQ(norm_of(trained.updates[1][0][0]), 0);
    for (const std::size_t step : {2u, 3u}) {
      const double norm = norm_of(trained.updates[step][0][0]);
      EXPECT_TRUE(std::isfinite(norm) && norm > 0) << norm;
    }
  }
}

TEST(PowerSgd, SendsFewerBytesThanDense) {
  const Trained thin = train(matrices("powersgd:1", 4, 1)), whole = train(matrices("dense", 4, 1));
  EXPECT_LT(thin.stats[0][0].bytes_sent, whole.stats[0][0].bytes_sent);
}

TEST(PowerSgd, RefusesRowsThatDoNotDivide) {
  run_threads(1, [](Communicator& communicator) {
    EXPECT_THROW((void)Synchronizer::make(communicator, {{"w", 10, Role::hidden, 3}}, parse_recipe("powersgd")), Error);
  });
}

}  // namespace
}  // namespace tulle::gradient
