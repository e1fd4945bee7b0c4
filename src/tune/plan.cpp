#include "tulle/tune/plan.hpp"

#include <cmath>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

PlanCell cell_of(const PlannedCall& call) {
  try {
    const Explanation explanation = explain_costs(call);
    return {call.ranks, call.density, explanation.winner(), explanation.best_dense};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    return {call.ranks, call.density, {}, {}};
  }
}

}  // namespace

std::optional<double> PlanCell::speed_up() const {
  if (winner.row == nullptr || best_dense.row == nullptr || std::isinf(best_dense.seconds)) return std::nullopt;
  return best_dense.seconds / winner.seconds;
}

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
