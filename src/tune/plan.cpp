#include "tulle/tune/plan.hpp"

namespace tulle {
namespace {

PlanCell cell_of(const PlannedCall& call) {
  const Explanation explanation = explain_costs(call);
  return {call.ranks, call.density, explanation.winner(), explanation.best_dense};
}

}  // namespace

std::vector<PlanCell> plan(const PlannedCall& call, const std::vector<int>& ranks,
                           const std::vector<double>& densities) {
  std::vector<PlanCell> cells;
  for (const int count : ranks) {
    for (const double density : densities) {
      PlannedCall here = call;
      here.ranks = count;
      here.density = density;
      if (count % here.teams != 0) here.teams = 1;
      cells.push_back(cell_of(here));
    }
  }
  return cells;
}

}  // namespace tulle
