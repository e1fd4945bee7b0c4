#include "tulle/tune/explain.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "collectives/index_choice.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle {
namespace {

double growth(const Algorithm& row, CostInput input, std::string_view letter) {
  constexpr double kStep = 1e-6;
  const double before = row.cost_seconds(input);
  for (const ProfileConstant& constant : profile_constants()) {
    if (constant.name.find(letter) != std::string_view::npos) input.profile.*constant.field *= 1 + kStep;
  }
  return (row.cost_seconds(input) - before) / kStep;
}

std::vector<RowCost> costs_of_rows(const RowNeeds& needs, const CostInput& input) {
  std::vector<RowCost> rows;
  for (const Algorithm& row : registry()) {
    if (can_serve(row, needs)) rows.push_back(cost_of(row, input));
  }
  std::ranges::stable_sort(rows, {}, &RowCost::seconds);
  return rows;
}

RowCost best_dense_of(const std::vector<RowCost>& rows) {
  const auto found = std::ranges::find_if(
      rows, [](const RowCost& cost) { return cost.row->input == Layout::dense && cost.row->takes == Takes::stream; });
  return found == rows.end() ? RowCost() : *found;
}

IndexCost index_cost(const CostInput& input) {
  if (input.nnz <= 0) return {};
  const IndexChoice choice(input.index_coding, input.profile);
  const double density = std::min(1.0, input.nnz / input.dimension);
  const auto width = static_cast<std::size_t>(input.index_bytes);
  return {choice.for_density(density, width), choice.bits(density, width),
          index_entropy_bits(input.dimension, input.nnz)};
}

bool has_winner(PlannedCall& call, double density) {
  call.density = density;
  return !std::isinf(costs_of_rows(row_needs(call), cost_input(call)).front().seconds);
}

const Algorithm& winner_at(PlannedCall& call, double density) {
  call.density = density;
  return winner_of(call);
}

// The first change of winner in (low, high], by halving on the logarithm. REQUIRES: the winners of the ends differ.
Crossover first_change(PlannedCall& call, double low, double high) {
  constexpr double kCloseEnough = 1.01;
  const Algorithm& below = winner_at(call, low);
  while (high / low > kCloseEnough) {
    const double middle = std::sqrt(low * high);
    (&winner_at(call, middle) == &below ? low : high) = middle;
  }
  return {high, &below, &winner_at(call, high)};
}

}  // namespace

RowCost cost_of(const Algorithm& row, const CostInput& input) {
  const double seconds = row.cost_seconds(input);
  if (std::isinf(seconds)) return {&row, seconds};
  return {&row, seconds, growth(row, input, "alpha"), growth(row, input, "beta"), growth(row, input, "gamma")};
}

const Algorithm& winner_of(const PlannedCall& call) { return choose(row_needs(call), cost_input(call)); }

std::vector<Crossover> crossovers(PlannedCall call, double lowest, double highest) {
  assert(lowest > 0 && lowest < highest && highest <= 1);
  constexpr double kStride = 1.25;  // a row that wins on less than this is too close to its neighbours to matter
  std::vector<Crossover> found;
  for (double low = lowest; low < highest;) {
    const double high = std::min(highest, low * kStride);
    if (!has_winner(call, high)) break;
    if (&winner_at(call, low) == &winner_at(call, high)) {
      low = high;
      continue;
    }
    found.push_back(first_change(call, low, high));
    low = found.back().density;
  }
  return found;
}

Explanation explain_costs(const PlannedCall& call) {
  Explanation explanation{.input = cost_input(call)};
  winner_of(call);  // throws where there is none
  explanation.rows = costs_of_rows(row_needs(call), explanation.input);
  explanation.best_dense = best_dense_of(explanation.rows);
  if (call.takes == Takes::stream) explanation.bounds = lower_bounds(explanation.input);
  explanation.indices = index_cost(explanation.input);
  return explanation;
}

Explanation explain(const PlannedCall& call) {
  Explanation explanation = explain_costs(call);
  const double lowest = std::max(1e-6, 1 / static_cast<double>(call.dimension));
  if (lowest < 1) explanation.crossovers = crossovers(call, lowest, 1);
  return explanation;
}

}  // namespace tulle
