// Every recipe trains: logistic regression on made-up data, four ranks, beside dense in the same number of steps.
#include <cmath>

#include "gradient/training.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

constexpr std::size_t kFeatures = 200, kRows = 300;  // of each rank
constexpr int kRanks = 4;
constexpr std::uint64_t kSteps = 60;
constexpr float kRate = 4;

// Rows of a rank whose labels a hidden model gives, some of them wrong.
struct Data {
  std::vector<Values> rows;
  Values labels;

  explicit Data(int rank) {
    Philox truth(99), random(7, static_cast<std::uint64_t>(rank));
    Values hidden(kFeatures);
    for (float& weight : hidden) weight = static_cast<float>(truth.uniform() - 0.5);
    for (std::size_t row = 0; row < kRows; ++row) {
      Values& features = rows.emplace_back(kFeatures);
      double score = 0;
      for (std::size_t i = 0; i < kFeatures; ++i) {
        features[i] = static_cast<float>((random.uniform() - 0.5) * (i % 10 == 0 ? 2 : 0.5));
        score += features[i] * hidden[i];
      }
      labels.push_back((score > 0) != (random.below(20) == 0) ? 1.0f : 0.0f);
    }
  }

  double score(std::size_t row, const Values& weights) const {
    double sum = 0;
    for (std::size_t i = 0; i < kFeatures; ++i) sum += rows[row][i] * weights[i];
    return sum;
  }
  Values gradient(const Values& weights) const {
    Values sum(kFeatures);
    for (std::size_t row = 0; row < kRows; ++row) {
      const double error = 1 / (1 + std::exp(-score(row, weights))) - labels[row];
      for (std::size_t i = 0; i < kFeatures; ++i) sum[i] += static_cast<float>(error * rows[row][i] / kRows);
    }
    return sum;
  }
  double right(const Values& weights) const {
    double count = 0;
    for (std::size_t row = 0; row < kRows; ++row) count += (score(row, weights) > 0) == (labels[row] == 1);
    return count / kRows;
  }
};

// What a rank does: local steps where the recipe has them, then an exchange of Δ; else the gradient.
Task<> learn(Communicator& communicator, const Recipe& recipe, double& accuracy) {
  const Data data(communicator.rank());
  std::vector<Parameter> parameters = {{"w", kFeatures, Role::hidden, 20}};
  Task<Synchronizer> making = Synchronizer::await_make(communicator, parameters, recipe);
  Synchronizer synchronizer = co_await making;
  // A recipe with momentum of its own takes steps that are larger by 1/(1 − momentum).
  const float rate = recipe.every > 1 ? 1 : kRate * static_cast<float>(1 - recipe.momentum);
  Values weights(kFeatures), before(kFeatures), update(kFeatures);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Values given = data.gradient(weights);
    if (recipe.every > 1) {
      for (std::size_t i = 0; i < kFeatures; ++i) weights[i] -= kRate * given[i];
      if (!synchronizer.count_local_step()) continue;
      for (std::size_t i = 0; i < kFeatures; ++i) given[i] = before[i] - weights[i];
      weights = before;
    }
    synchronizer.start(0, std::span<const float>(given));
    synchronizer.end_step();
    Task<bool> finishing = synchronizer.await_finish_into(0, update);
    co_await finishing;
    for (std::size_t i = 0; i < kFeatures; ++i) weights[i] -= rate * update[i];
    before = weights;
  }
  accuracy = data.right(weights);
}

double accuracy_of(Recipe recipe) {
  recipe.dense_below = 0;
  if (recipe.density < 0.1) recipe.density = 0.1;  // of 200 values each shall have its turn several times in 60 steps
  // Masked momentum starts again whenever a value is sent; for 0.9 these are too few steps.
  if (recipe.momentum > 0.5) recipe.momentum = 0.5;
  if (recipe.keep > 0) recipe.keep = 4;
  if (recipe.keep > 0) recipe.bucket = 40;
  if (recipe.every > 5) recipe.every = 5;
  double by_rank[kRanks] = {};
  SimWorld world({.ranks = kRanks});
  const Program program = [&](Communicator& communicator) {
    return learn(communicator, recipe, by_rank[communicator.rank()]);
  };
  world.run(program);
  double mean = 0;
  for (const double accuracy : by_rank) mean += accuracy / kRanks;
  return mean;
}

class EveryPresetTrains : public ::testing::TestWithParam<const Preset*> {};

TEST_P(EveryPresetTrains, NearlyAsWellAsDense) {
  static const double dense = accuracy_of(parse_recipe("dense"));
  EXPECT_GT(dense, 0.85);
  const double accuracy = accuracy_of(GetParam()->recipe);
  EXPECT_GT(accuracy, dense - 0.03) << "dense has " << dense;
}

// All that send anything.
std::vector<const Preset*> sending_presets() {
  std::vector<const Preset*> rows;
  for (const Preset& preset : presets()) {
    if (preset.recipe.exchange != Exchange::none) rows.push_back(&preset);
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Presets, EveryPresetTrains, ::testing::ValuesIn(sending_presets()),
                         [](const auto& row) { return std::string(row.param->name); });

}  // namespace
}  // namespace tulle::gradient
