// Lazy penalties against weights that are all touched in every step.
#include "linear/weights.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "linear/losses.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

constexpr std::uint64_t kFeatures = 40;
constexpr GradientLayout kLayout{2, kFeatures};

Stream<float> sparse_gradient(Philox& random) {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  for (std::uint32_t i = 0; i < kLayout.dimension(); ++i) {
    if (random.uniform() > 0.15) continue;
    indices.push_back(i);
    values.push_back(static_cast<float>(random.uniform() * 20 - 10));
  }
  return Stream<float>::from_sorted<std::uint32_t>(kLayout.dimension(), indices, values);
}

// Every weight in every step, in double.
struct Eager {
  std::vector<double> weights = std::vector<double>(kLayout.dimension());
  std::vector<double> squares = std::vector<double>(kLayout.dimension());
  std::vector<double> linear = std::vector<double>(kLayout.dimension());  // of the function that adagrad minimizes
  int steps = 0;

  void step(const std::vector<float>& gradient, double rate, double rows, Penalty penalty, bool is_adagrad) {
    steps += 1;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double g = gradient[i] / rows;
      const bool is_intercept = i % kLayout.stride() == kFeatures;
      const double l1 = is_intercept ? 0 : penalty.l1, l2 = is_intercept ? 0 : penalty.l2;
      if (!is_adagrad) {
        weights[i] = soft_threshold((1 - rate * l2) * weights[i] - rate * g, rate * l1);
        continue;
      }
      const double before = squares[i] > 0 ? std::sqrt(squares[i]) / rate : 0;
      squares[i] += g * g;
      const double curvature = std::sqrt(squares[i]) / rate;
      linear[i] += g - (curvature - before) * weights[i];
      if (squares[i] > 0) weights[i] = -soft_threshold(linear[i], steps * l1) / (curvature + steps * l2);
    }
  }
};

void expect_lazy_equals_eager(Penalty penalty, bool is_adagrad, double rate, int steps, bool is_dense = false) {
  const auto lazy = is_adagrad ? make_adagrad_weights(kLayout, penalty) : make_scaled_weights(kLayout, penalty);
  Eager eager;
  Philox random(7);
  for (int step = 0; step < steps; ++step) {
    const Stream<float> gradient = sparse_gradient(random);
    const double rows = 5 + step % 3;
    lazy->step(is_dense ? Stream<float>::dense(gradient.to_vector()) : gradient, rate, rows);
    eager.step(gradient.to_vector(), rate, rows, penalty, is_adagrad);
  }
  std::vector<float> weights(2 * kFeatures);
  lazy->copy_to(weights);
  for (std::size_t vector = 0; vector < 2; ++vector) {
    for (std::uint64_t i = 0; i < kFeatures; ++i) {
      ASSERT_NEAR(weights[vector * kFeatures + i], eager.weights[vector * kLayout.stride() + i], 2e-4) << i;
    }
    EXPECT_NEAR(lazy->intercepts()[vector], eager.weights[vector * kLayout.stride() + kFeatures], 1e-4);
  }
}

TEST(ScaledWeights, ShrinkLazilyAsIfTouchedInEveryStep) {
  for (const Penalty penalty : {Penalty{}, Penalty{.l2 = 0.1}, Penalty{.l1 = 0.05}, Penalty{.l1 = 0.05, .l2 = 0.2}}) {
    expect_lazy_equals_eager(penalty, false, 0.1, 200);
    expect_lazy_equals_eager(penalty, false, 0.1, 200, true);
  }
}

TEST(ScaledWeights, FoldTheirScaleBeforeItIsTooSmall) {
  expect_lazy_equals_eager({.l1 = 0.01, .l2 = 2}, false, 0.2, 300);
}

TEST(AdagradWeights, ShrinkLazilyAsIfTouchedInEveryStep) {
  for (const Penalty penalty : {Penalty{}, Penalty{.l2 = 0.1}, Penalty{.l1 = 0.05}, Penalty{.l1 = 0.05, .l2 = 0.2}}) {
    expect_lazy_equals_eager(penalty, true, 0.1, 200);
    expect_lazy_equals_eager(penalty, true, 0.1, 200, true);
  }
}

TEST(AdagradWeights, AreZeroWhereTheMeanGradientIsBelowL1HoweverItVaries) {
  const auto weights = make_adagrad_weights(kLayout, {.l1 = 0.1});
  Philox random(5);
  for (int step = 0; step < 2000; ++step) {  // of mean 0.05 and 0.15
    const std::vector<std::uint32_t> indices = {3, 4};
    const std::vector<float> values = {static_cast<float>(random.uniform() * 2 - 0.95),
                                       static_cast<float>(random.uniform() * 2 - 0.85)};
    weights->step(Stream<float>::from_sorted<std::uint32_t>(kLayout.dimension(), indices, values), 0.1, 1);
  }
  std::vector<float> all(2 * kFeatures);
  weights->copy_to(all);
  EXPECT_EQ(all[3], 0);
  EXPECT_LT(all[4], 0);
}

TEST(AdagradWeights, MeasureStepsInTheUnitsOfFeaturesAndTargets) {
  // Values 100 times as large, and targets 10 times: the same weights, 10/100 times as large.
  for (const Penalty penalty : {Penalty{}, Penalty{.l2 = 1e-12}}) {
    std::vector<float> rates(kFeatures, 1.0f);
    rates[3] = 0.01f;
    const auto plain = make_adagrad_weights(kLayout, penalty);
    const auto scaled = make_adagrad_weights(kLayout, penalty, rates, 10);
    Philox random(5);
    for (int step = 0; step < 50; ++step) {
      const std::vector<std::uint32_t> indices = {3, 40};
      const std::vector<float> values = {static_cast<float>(random.uniform() - 0.4), 0.5f};
      const std::vector<float> larger = {values[0] * 1000, values[1] * 10};
      plain->step(Stream<float>::from_sorted<std::uint32_t>(kLayout.dimension(), indices, values), 0.1, 2);
      scaled->step(Stream<float>::from_sorted<std::uint32_t>(kLayout.dimension(), indices, larger), 0.1, 2);
    }
    std::vector<float> a(2 * kFeatures), b(2 * kFeatures);
    plain->copy_to(a);
    scaled->copy_to(b);
    EXPECT_NEAR(b[3], a[3] / 10, 1e-5 * std::abs(a[3]));
    EXPECT_NEAR(scaled->intercepts()[0], 10 * plain->intercepts()[0], 1e-4);
  }
}

TEST(Weights, GiveMarginsOfTheWeightsTheyCopyOut) {
  for (const bool is_adagrad : {false, true}) {
    const Penalty penalty{.l1 = 0.01, .l2 = 0.01};
    const auto weights = is_adagrad ? make_adagrad_weights(kLayout, penalty) : make_scaled_weights(kLayout, penalty);
    Philox random(3);
    for (int step = 0; step < 20; ++step) weights->step(sparse_gradient(random), 0.1, 4);
    std::vector<float> all(2 * kFeatures), margins(1), on_threads(1);
    weights->copy_to(all);
    const std::vector<std::uint32_t> indices = {0, 5, 39};
    const std::vector<float> values = {1, -2, 3};
    Batch batch;
    batch.rows.push_back({indices, values});
    weights->margins(batch, 1, margins, 1);
    weights->margins(batch, 1, on_threads, 2);
    EXPECT_NEAR(margins[0], all[40] - 2 * all[45] + 3 * all[79] + weights->intercepts()[1], 1e-5);
    EXPECT_EQ(margins, on_threads);
  }
}

}  // namespace
}  // namespace tulle::linear
