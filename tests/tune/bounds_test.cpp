// SparCML's bounds against numbers worked out by hand.
#include "tulle/tune/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tulle/tune/planned_call.hpp"

namespace tulle {
namespace {

// α = 1 s, β = 1/4 s a byte: βd = 1 s a value of f32.
PlannedCall unit_call(double density) {
  return {.ranks = 8,
          .dimension = 1024,
          .density = density,
          .profile = {.alpha_seconds = 1, .beta_seconds_per_byte = 0.25}};
}

Bound bound_named(std::string_view name, const CostInput& input) {
  const std::vector<Bound> bounds = lower_bounds(input);
  return *std::ranges::find(bounds, name, &Bound::name);
}

TEST(Bounds, equal_the_papers_formulas) {
  const CostInput input = cost_input(unit_call(1.0 / 64));  // k = 16
  EXPECT_DOUBLE_EQ(bound_named("identical_indices", input).seconds, 3 + 2 * 7.0 / 8 * 16);
  EXPECT_DOUBLE_EQ(bound_named("disjoint_indices", input).seconds, 3 + 7 * 16);
  EXPECT_DOUBLE_EQ(bound_named("fill_in", input).seconds, 3 + 1024);
  EXPECT_DOUBLE_EQ(bound_named("twice_dense", input).seconds, 7.0 / 8 * 1024);
  EXPECT_DOUBLE_EQ(bound_named("two_over_kappa", input).seconds, 7.0 / 8 * 512);  // κ = 1/2
}

TEST(Bounds, know_when_a_sum_stays_sparse) {
  const CostInput sparse = cost_input(unit_call(1.0 / 64)), filled = cost_input(unit_call(0.2));
  EXPECT_TRUE(bound_named("identical_indices", sparse).applies);
  EXPECT_FALSE(bound_named("fill_in", sparse).applies);
  EXPECT_FALSE(bound_named("identical_indices", filled).applies);
  for (const char* name : {"fill_in", "twice_dense", "two_over_kappa"}) {
    EXPECT_TRUE(bound_named(name, filled).applies) << name;
  }
  EXPECT_FALSE(bound_named("disjoint_indices", sparse).applies) << "uniform draws of 16 in 1024 overlap";
  EXPECT_TRUE(bound_named("disjoint_indices", cost_input(unit_call(1e-6))).applies);
}

TEST(Bounds, entropy_is_that_of_what_a_rank_does_not_know) {
  CostInput input = cost_input(unit_call(1.0 / 1024));  // k = 1
  input.result_nnz = 3;                                 // two more of 1023
  const double bits = std::log2(1023.0 * 1022 / 2);
  EXPECT_NEAR(bound_named("entropy", input).seconds, 3 + 0.25 * (2 * 4 + bits / 8), 1e-9);
}

TEST(Bounds, mean_nothing_for_one_rank) {
  PlannedCall call = unit_call(0.2);
  call.ranks = 1;
  for (const Bound& bound : lower_bounds(cost_input(call))) EXPECT_FALSE(bound.applies) << bound.name;
}

}  // namespace
}  // namespace tulle
