#include "tulle/tune/explain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tulle {
namespace {

constexpr Profile kGige{.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8.5e-9};

std::vector<PlannedCall> calls() {
  std::vector<PlannedCall> all;
  for (const Profile& profile : {Profile{}, kGige}) {
    for (const int ranks : {2, 3, 8, 64}) {
      for (const double density : {1e-5, 1e-3, 0.02, 0.3, 1.0}) {
        all.push_back({.ranks = ranks, .dimension = 1 << 20, .density = density, .profile = profile});
      }
    }
  }
  return all;
}

TEST(Explain, puts_the_row_first_that_choose_takes) {
  for (const PlannedCall& call : calls()) {
    const Explanation explanation = explain_costs(call);
    EXPECT_EQ(explanation.winner().row, &choose(row_needs(call), cost_input(call)));
    EXPECT_TRUE(std::ranges::is_sorted(explanation.rows, {}, &RowCost::seconds));
  }
}

TEST(Explain, has_every_row_that_auto_may_take) {
  const Explanation explanation = explain_costs({});
  const auto takes = [](const Algorithm& row) {
    return row.kind == OperationKind::allreduce && row.takes == Takes::stream && row.needs == Needs::messages;
  };
  EXPECT_EQ(explanation.rows.size(), static_cast<std::size_t>(std::ranges::count_if(registry(), takes)));
  for (const RowCost& cost : explanation.rows) EXPECT_TRUE(takes(*cost.row)) << cost.row->name;
}

TEST(Explain, splits_a_cost_into_parts_that_add_up) {
  for (const PlannedCall& call : calls()) {
    for (const RowCost& cost : explain_costs(call).rows) {
      const double sum = cost.alpha_seconds + cost.beta_seconds + cost.gamma_seconds;
      EXPECT_NEAR(sum, cost.seconds, 1e-4 * cost.seconds) << cost.row->name << " at density " << call.density;
      EXPECT_GE(cost.alpha_seconds, 0) << cost.row->name;
    }
  }
}

TEST(Explain, gives_latency_the_part_that_goes_away_with_alpha) {
  PlannedCall call{.ranks = 8, .profile = kGige};
  const RowCost with = explain_costs(call).winner();
  call.profile.alpha_seconds = call.profile.node_alpha_seconds = 0;
  const double without = with.row->cost_seconds(cost_input(call));
  EXPECT_NEAR(with.alpha_seconds, with.seconds - without, 1e-6 * with.seconds);
}

// What choose() says on both sides of every crossover, and that no winner is missed on a grid of its own.
TEST(Explain, turns_where_choose_does) {
  for (const Profile& profile : {Profile{}, kGige}) {
    PlannedCall call{.ranks = 8, .dimension = std::uint64_t{1} << 24, .profile = profile};
    const std::vector<Crossover> turns = explain(call).crossovers;
    EXPECT_GE(turns.size(), 2u);
    for (const Crossover& turn : turns) {
      call.density = turn.density / 1.02;
      EXPECT_EQ(&winner_of(call), turn.below) << call.density;
      call.density = std::min(1.0, turn.density * 1.001);
      EXPECT_EQ(&winner_of(call), turn.above) << call.density;
    }
    for (double density = 1.3e-6; density < 1; density *= 1.7) {
      call.density = density;
      const auto next = std::ranges::find_if(turns, [&](const Crossover& turn) { return turn.density > density; });
      const Algorithm* const expected = next == turns.end() ? turns.back().above : next->below;
      EXPECT_EQ(&winner_of(call), expected) << density;
    }
  }
}

TEST(Explain, names_the_coding_and_the_entropy_of_indices) {
  PlannedCall call{.density = 0.01, .index_coding = "rice", .profile = kGige};
  const IndexCost rice = explain_costs(call).indices;
  EXPECT_EQ(rice.coding, IndexCoding::rice);
  EXPECT_LT(rice.bits, 1.05 * rice.entropy_bits);
  EXPECT_GE(rice.bits, rice.entropy_bits);
  call.index_coding = "raw";
  EXPECT_EQ(explain_costs(call).indices.bits, 32);
}

TEST(Explain, refuses_dense_rows_that_cannot_hold_the_vector) {
  PlannedCall call{.dimension = std::uint64_t{1} << 33, .density = 1e-6};
  const Explanation explanation = explain_costs(call);
  EXPECT_TRUE(std::isinf(explanation.best_dense.seconds));
  EXPECT_FALSE(std::isinf(explanation.winner().seconds));
}

TEST(Explain, tells_what_is_out_of_bounds) {
  EXPECT_THROW(explain({.ranks = 0}), Error);
  EXPECT_THROW(explain({.ranks_per_node = 0}), Error);
  EXPECT_THROW(explain({.dimension = 0}), Error);
  EXPECT_THROW(explain({.density = 2}), Error);
  EXPECT_THROW(explain({.ranks = 8, .teams = 3}), Error);
  EXPECT_THROW(explain({.index_coding = "zip"}), Error);
}

TEST(Explain, looks_at_rows_that_select_where_asked_to) {
  const Explanation explanation = explain({.ranks = 8, .density = 0.01, .takes = Takes::accumulator});
  EXPECT_EQ(explanation.winner().row->takes, Takes::accumulator);
  EXPECT_EQ(explanation.best_dense.row, nullptr);
}

}  // namespace
}  // namespace tulle
