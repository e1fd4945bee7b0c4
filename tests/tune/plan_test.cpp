#include "tulle/tune/plan.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

TEST(Plan, says_in_every_cell_what_explain_says) {
  PlannedCall call{.dimension = 1 << 20, .profile = {.alpha_seconds = 3e-5, .beta_seconds_per_byte = 8.5e-9}};
  const std::vector<int> ranks = {2, 5, 64};
  const std::vector<double> densities = {1e-4, 0.01, 0.5};
  const std::vector<PlanCell> cells = plan(call, ranks, densities);
  ASSERT_EQ(cells.size(), 9u);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    call.ranks = ranks[i / 3];
    call.density = densities[i % 3];
    const Explanation explanation = explain(call);
    EXPECT_EQ(cells[i].ranks, call.ranks);
    EXPECT_EQ(cells[i].density, call.density);
    EXPECT_EQ(cells[i].winner.row, explanation.winner().row);
    EXPECT_EQ(cells[i].best_dense.row, explanation.best_dense.row);
    ASSERT_TRUE(cells[i].speed_up().has_value());
    EXPECT_DOUBLE_EQ(*cells[i].speed_up(), explanation.best_dense.seconds / explanation.winner().seconds);
    EXPECT_GE(*cells[i].speed_up(), 1) << "dense rows compete too";
  }
}

TEST(Plan, drops_teams_that_do_not_divide_the_ranks) {
  const std::vector<PlanCell> cells = plan({.takes = Takes::accumulator, .teams = 4}, {3, 8}, {0.01});
  EXPECT_EQ(cells.size(), 2u);
  EXPECT_FALSE(cells[0].speed_up()) << "no dense row takes accumulators";
}

TEST(Plan, leaves_cells_empty_that_no_row_can_do) {
  const PlannedCall call{.dimension = std::uint64_t{1} << 33, .value_coding = parse_value_codec("qsgd:bits=4")};
  const std::vector<PlanCell> cells = plan(call, {8}, {1e-6, 0.9});
  EXPECT_NE(cells[0].winner.row, nullptr);
  EXPECT_EQ(cells[1].winner.row, nullptr);
  EXPECT_FALSE(cells[1].speed_up());
}

}  // namespace
}  // namespace tulle
