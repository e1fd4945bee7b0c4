// SparCML's bounds against numbers worked out by hand.
#include "tulle/tune/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/sim.hpp"
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

/// Uniform contributions on a named network, by every exact row.
struct SimulatedCall {
  std::string_view network;
  int ranks;
  double density;
  std::string index_coding;

  static constexpr std::uint64_t kDimension = 1u << 20;

  CostInput input() const {
    return cost_input({.ranks = ranks,
                       .dimension = kDimension,
                       .density = density,
                       .index_coding = index_coding,
                       .profile = preset_network(network).profile()});
  }
  double fastest_seconds() const {
    double fastest = 1e9;
    for (const Algorithm& row : registry()) {
      if (can_serve(row, {})) fastest = std::min(fastest, seconds_of(row));
    }
    return fastest;
  }

 private:
  double seconds_of(const Algorithm& row) const {
    const auto nnz = static_cast<std::uint64_t>(density * kDimension);
    const AnyStream stream = AnyStream::phantom(ValueType::f32, kDimension, {0, kDimension}, Layout::sparse, nnz);
    SimWorld world({.ranks = ranks, .network = preset_network(network)});
    const CallOptions options{.algorithm = row.name, .index_coding = index_coding};
    world.run([&](Communicator& communicator) -> Task<> {
      auto request = iallreduce(communicator, stream, options);
      co_await request;
    });
    return world.elapsed_seconds();
  }
};

Bound bound_named(std::string_view name, const CostInput& input) {
  const std::vector<Bound> bounds = lower_bounds(input);
  return *std::ranges::find(bounds, name, &Bound::name);
}

TEST(Bounds, equal_the_papers_formulas) {
  const CostInput input = cost_input(unit_call(1.0 / 64));  // k = 16
  EXPECT_DOUBLE_EQ(bound_named("identical_indices", input).seconds, 3 + 2 * 7.0 / 8 * 16);
  EXPECT_DOUBLE_EQ(bound_named("disjoint_indices", input).seconds, 3 + 7 * 16);
  EXPECT_DOUBLE_EQ(bound_named("fill_in", input).seconds, 3 + 7.0 / 8 * 1024);  // a port sends and receives at once
  EXPECT_DOUBLE_EQ(bound_named("twice_dense", input).seconds, 7.0 / 8 * 1024);
  EXPECT_DOUBLE_EQ(bound_named("two_over_kappa", input).seconds, 7.0 / 8 * 512);  // κ = 1/2
}

TEST(Bounds, know_when_a_sum_stays_sparse) {
  PlannedCall nearly_all = unit_call(0.2);
  nearly_all.index_coding = "raw";
  const CostInput sparse = cost_input(unit_call(1.0 / 64)), filled = cost_input(nearly_all);
  EXPECT_TRUE(bound_named("identical_indices", sparse).applies);
  EXPECT_FALSE(bound_named("fill_in", sparse).applies);
  EXPECT_FALSE(bound_named("identical_indices", filled).applies);
  for (const char* name : {"fill_in", "twice_dense", "two_over_kappa"}) {
    EXPECT_TRUE(bound_named(name, filled).applies) << name;
  }
  EXPECT_FALSE(bound_named("disjoint_indices", sparse).applies) << "uniform draws of 16 in 1024 overlap";
  EXPECT_TRUE(bound_named("disjoint_indices", cost_input(unit_call(1e-6))).applies);
}

TEST(Bounds, let_a_coded_sum_stay_sparse_for_longer) {
  PlannedCall call = unit_call(0.2);  // K is 83 %
  call.index_coding = "raw";
  EXPECT_TRUE(bound_named("fill_in", cost_input(call)).applies);
  call.index_coding = "smallest";
  EXPECT_FALSE(bound_named("fill_in", cost_input(call)).applies);
}

// Every row, on networks where each of latency, wire and computing counts, with contributions from few to nearly all.
TEST(Bounds, are_beaten_by_no_row_in_simulation) {
  int applied = 0;
  for (const std::string_view network : {"gige", "aries", "wan_100mbit"}) {
    for (const int ranks : {2, 3, 5, 8, 13, 16, 33}) {
      for (const double density : {1e-5, 1e-3, 0.01, 0.03, 0.05, 0.1, 0.3, 0.7}) {
        for (const std::string_view coding : {"auto", "raw", "smallest"}) {
          const SimulatedCall call{network, ranks, density, std::string(coding)};
          const double fastest = call.fastest_seconds();
          for (const Bound& bound : lower_bounds(call.input())) {
            if (!bound.applies) continue;
            applied += bound.name == "fill_in";
            EXPECT_GE(fastest * 1.001, bound.seconds)
                << bound.name << " on " << network << ", P = " << ranks << ", " << density << ", " << coding;
          }
        }
      }
    }
  }
  EXPECT_GT(applied, 50);
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

TEST(Bounds, are_for_ranks_with_links_of_their_own) {
  for (const Bound& bound : lower_bounds(cost_input({.ranks = 16, .ranks_per_node = 8, .density = 1e-4}))) {
    EXPECT_FALSE(bound.applies) << bound.name;
  }
}

}  // namespace
}  // namespace tulle
