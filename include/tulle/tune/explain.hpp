// Why auto chooses what it chooses: costs row by row, where the choice turns, how far the best is from the bounds.
//
// Threads: pure functions, for any thread.
#pragma once

#include <vector>

#include "tulle/tune/bounds.hpp"
#include "tulle/tune/planned_call.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What a row costs, and which part of that is due to what: the parts add up.
struct RowCost {
  const Algorithm* row = nullptr;
  double seconds = 0;  ///< infinite where the row refuses the call
  double alpha_seconds = 0;
  double beta_seconds = 0;
  double gamma_seconds = 0;
};

/// Below this density one row is the cheapest, above it another.
struct Crossover {
  double density = 0;
  const Algorithm* below = nullptr;
  const Algorithm* above = nullptr;
};

/// How one rank's indices travel.
struct IndexCost {
  IndexCoding coding = IndexCoding::raw;
  double bits = 0;          ///< of one index, expected
  double entropy_bits = 0;  ///< log2 C(N, k) / k: the least
};

struct Explanation {
  CostInput input;
  std::vector<RowCost> rows;  ///< the cheapest first; those that auto may take
  RowCost best_dense;         ///< of the rows that work on dense vectors; no row where none does
  std::vector<Crossover> crossovers;
  std::vector<Bound> bounds;
  IndexCost indices;

  /// REQUIRES: explain() or explain_costs() made this, so that there is a row.
  const RowCost& winner() const { return rows.front(); }
};

/// One row's cost. A part is what the cost grows by, to first order, when its constants do: costs are linear in the
/// constants where the index coding stays the same, and with some of them at zero auto would pick another coding.
RowCost cost_of(const Algorithm& row, const CostInput& input);

/// The row that choose() takes. Throws as choose() does.
const Algorithm& winner_of(const PlannedCall& call);

/// Where the winner changes between two densities, from the lowest on, each to within 1 %. A row that wins on less than
/// a factor of 1.25 may be missed. Evaluates all rows about 30 times for a doubling of density. Throws as explain()
/// does. REQUIRES: 0 < lowest < highest <= 1.
std::vector<Crossover> crossovers(PlannedCall call, double lowest, double highest);

/// The costs, the bounds and the coding of one call, without crossovers. Throws as explain() does.
Explanation explain_costs(const PlannedCall& call);

/// Everything about one call. Crossovers are looked for from one non-zero in N, or 1e-6, to 1. Throws bad_input for a
/// call out of bounds, unsupported where no row can serve it.
Explanation explain(const PlannedCall& call);

}  // namespace tulle
#pragma GCC visibility pop
