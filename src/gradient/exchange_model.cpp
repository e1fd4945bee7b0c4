#include "gradient/exchange_model.hpp"

#include <algorithm>

#include "gradient/low_rank.hpp"
#include "gradient/policy.hpp"
#include "tulle/collectives/gather_contributions.hpp"
#include "tulle/collectives/registry.hpp"

namespace tulle::gradient {
namespace {

CostInput input_of(const Communicator& communicator, ChoiceBy by, std::uint64_t values, double nnz) {
  CostInput input = choice_basis(communicator, by);
  input.dimension = static_cast<double>(values);
  input.nnz = std::min(nnz, input.dimension);
  input.result_nnz = input.union_of(input.ranks);
  return input;
}

RowNeeds needs_of(const Recipe& recipe) {
  RowNeeds needs{.coded_values = recipe.values.coding != ValueCoding::raw};
  if (recipe.exchange == Exchange::accumulator) needs.takes = Takes::accumulator;
  if (recipe.row == kAutoSparse) needs.input = Layout::sparse;
  if (recipe.row == kAutoDense) needs.input = Layout::dense;
  return needs;
}

double row_seconds(const Recipe& recipe, const CostInput& input) {
  const bool is_choice = recipe.row == kAuto || recipe.row == kAutoSparse || recipe.row == kAutoDense;
  const Algorithm& row =
      is_choice ? choose(needs_of(recipe), input) : find_algorithm(OperationKind::allreduce, recipe.row);
  return row.cost_seconds(input);
}

// Two sums of thin matrices, one after the other.
double factor_seconds(const Communicator& communicator, ChoiceBy by, const Recipe& recipe, const Parameter& parameter) {
  if (parameter.rows == 0) return whole_exchange_seconds(communicator, by, parameter.size);
  const MatrixShape shape{parameter.rows, parameter.size / parameter.rows};
  const std::size_t rank = usable_rank(shape, recipe.rank);
  return whole_exchange_seconds(communicator, by, shape.rows * rank) +
         whole_exchange_seconds(communicator, by, shape.columns * rank);
}

}  // namespace

double whole_exchange_seconds(const Communicator& communicator, ChoiceBy by, std::uint64_t values) {
  const CostInput input = input_of(communicator, by, values, static_cast<double>(values));
  return choose({.input = Layout::dense}, input).cost_seconds(input);
}

bool ring_keeps_up(const Communicator& communicator, ChoiceBy by, std::uint64_t values) {
  // Costs of dense rows that send the same bytes differ by less, and by less than what they leave out. With much more a
  // ring would be taken where its many messages show.
  constexpr double kNoticeable = 1.03;
  const CostInput input = input_of(communicator, by, values, static_cast<double>(values));
  const double ring = find_algorithm(OperationKind::allreduce, "dense_ring").cost_seconds(input);
  return ring <= kNoticeable * choose({.input = Layout::dense}, input).cost_seconds(input);
}

double recipe_exchange_seconds(const Communicator& communicator, ChoiceBy by, const Recipe& recipe,
                               const Parameter& parameter, double density) {
  if (recipe.exchange == Exchange::none) return 0;
  if (recipe.exchange == Exchange::low_rank) return factor_seconds(communicator, by, recipe, parameter);
  const bool selects = recipe.selector != "none" || recipe.exchange == Exchange::accumulator;
  const double kept = static_cast<double>(recipe.keep) / static_cast<double>(recipe.bucket);
  const double share = !selects ? 1 : recipe.keep > 0 ? kept : density;
  CostInput input = input_of(communicator, by, parameter.size, share * static_cast<double>(parameter.size));
  input.index_coding = recipe.indices;
  input.coded_value_bytes = coded_value_bytes(recipe.values, ValueType::f32);
  input.layout_value_bytes = layout_value_bytes(recipe.values, ValueType::f32);
  input.teams = usable_teams(recipe.teams, communicator.size());
  return recipe.exchange == Exchange::gather ? gather_contributions_seconds(input) : row_seconds(recipe, input);
}

}  // namespace tulle::gradient
