// Recipes that send everything and code it: fp16, int8, qsgd. What travels exactly, what together, and what plan()
// says.
#include <cmath>
#include <numbers>

#include "gradient/training.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

// Normal, of variance 1.
Values normal_gradient(std::uint64_t size, int rank, std::uint64_t step) {
  Philox random(step + 1, static_cast<std::uint64_t>(rank));
  Values values(size);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    value = static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.uniform()));
  }
  return values;
}

// Integers, so that sums and means over four ranks are exact.
Training small_and_large(const std::string& recipe) {
  Training training{.ranks = 4, .recipe = parse_recipe(recipe), .steps = 2};
  training.parameters = {
      {"weight", 3000}, {"bias", 64, Role::bias_or_norm}, {"other weight", 700}, {"norm", 32, Role::bias_or_norm}};
  training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
    Values values = integer_gradient(sizes[id].size, rank, step, id);
    for (float& value : values) value += 0.25f;  // which 8 bits do not hold
    return values;
  };
  return training;
}

class CodedWhole : public ::testing::TestWithParam<const char*> {};

// A parameter of 64 values of 1e-3 beside one of 512 values of about 1: were they coded in one bucket, nothing of the
// small one would arrive.
TEST_P(CodedWhole, DeliversASmallParameterBesideALargeOne) {
  Training training{.ranks = 2, .recipe = parse_recipe(GetParam()), .steps = 50};
  training.parameters = {{"b", 64}, {"w", 512}};
  training.gradient = [](int rank, std::uint64_t step, ParameterId id) {
    return id == 0 ? Values(64, 1e-3f) : normal_gradient(512, rank, step);
  };
  const Trained trained = train(training);
  double delivered = 0;
  for (const auto& step : trained.updates) {
    for (const float value : step[0][0]) delivered += value;
  }
  EXPECT_NEAR(delivered, 50 * 64 * 1e-3, 0.1 * 50 * 64 * 1e-3);
}

TEST_P(CodedWhole, SendsWhatIsToTravelWholeAsItIs) {
  for (const char* const stage : {"dense_below:100", "small_roles_dense"}) {
    const Training training = small_and_large(std::string(GetParam()) + "|" + stage);
    const Trained coded = train(training), dense = train(small_and_large("dense"));
    for (std::uint64_t step = 0; step < training.steps; ++step) {
      EXPECT_EQ(coded.updates[step][1][0], dense.updates[step][1][0]) << stage;
      EXPECT_EQ(coded.updates[step][3][0], dense.updates[step][3][0]) << stage;
      EXPECT_NE(coded.updates[step][0][0], dense.updates[step][0][0]) << "nothing was coded";
    }
  }
}

// Two exact parameters share a message. Codings that look at many values at once have each parameter to themselves.
TEST_P(CodedWhole, PlansWhatItDoes) {
  const Training training = small_and_large(std::string(GetParam()) + "|small_roles_dense");
  const std::vector<PlanRow> plan = train(training).plans[0];
  const ValueCoding coding = training.recipe.values.coding;
  const std::string partner = coding == ValueCoding::f16 ? "weight" : "";
  for (const ParameterId id : {0u, 2u}) {
    EXPECT_EQ(plan[id].how, to_string(coding));
    EXPECT_EQ(plan[id].together, partner);
    EXPECT_EQ(plan[id].reason, "the recipe sends everything");
  }
  for (const ParameterId id : {1u, 3u}) {
    EXPECT_EQ(plan[id].how, "dense");
    EXPECT_EQ(plan[id].together, "bias");
    EXPECT_EQ(plan[id].reason, "its role is bias_or_norm");
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, CodedWhole, ::testing::Values("fp16", "int8", "qsgd"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace tulle::gradient
