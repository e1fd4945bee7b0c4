// A map of which row wins where, over density and number of ranks.
//
// Threads: pure functions, for any thread.
#pragma once

#include <optional>
#include <vector>

#include "tulle/tune/explain.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct PlanCell {
  int ranks = 1;
  double density = 0;
  RowCost winner;      ///< no row where none can do it
  RowCost best_dense;  ///< no row where the call allows none

  /// How many times sooner the winner is than the best dense row, where there is one.
  std::optional<double> speed_up() const;
};

/// A cell for every number of ranks and every density, ranks by ranks, each at the cost of explain_costs(). What else
/// the call says stays; teams that do not divide the ranks become 1. Throws bad_input as explain() does.
std::vector<PlanCell> plan(const PlannedCall& call, const std::vector<int>& ranks,
                           const std::vector<double>& densities);

}  // namespace tulle
#pragma GCC visibility pop
