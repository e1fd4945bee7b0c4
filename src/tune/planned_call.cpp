#include "tulle/tune/planned_call.hpp"

#include <fmt/format.h>

#include "collectives/index_choice.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

void require_sound(const PlannedCall& call) {
  const auto refuse = [](std::string_view why) { throw Error(ErrorKind::bad_input, std::string(why)); };
  if (call.ranks < 1) refuse("ranks must be 1 or more");
  if (call.ranks_per_node < 1) refuse("ranks_per_node must be 1 or more");
  if (call.dimension < 1) refuse("dimension must be 1 or more");
  if (!(call.density >= 0 && call.density <= 1)) refuse("density must be from 0 to 1");
  if (call.teams < 1 || call.ranks % call.teams != 0) refuse(fmt::format("teams must divide {} ranks", call.ranks));
}

}  // namespace

CostInput cost_input(const PlannedCall& call) {
  require_sound(call);
  CostInput input;
  input.ranks = call.ranks;
  input.dimension = static_cast<double>(call.dimension);
  input.nnz = call.density * input.dimension;
  input.result_nnz = input.union_of(input.ranks);
  input.value_bytes = static_cast<double>(size_of(compute_type(call.type)));
  input.index_bytes = static_cast<double>(index_bytes(call.dimension));
  input.index_coding = index_coding_named(call.index_coding);
  input.coded_value_bytes = coded_value_bytes(call.value_coding, call.type);
  input.layout_value_bytes = layout_value_bytes(call.value_coding, call.type);
  input.teams = call.teams;
  input.nodes = (call.ranks + call.ranks_per_node - 1) / call.ranks_per_node;
  input.profile = profile_of_rank(call.profile, input.ranks, input.nodes);
  return input;
}

RowNeeds row_needs(const PlannedCall& call) {
  return {OperationKind::allreduce, call.takes, call.value_coding.coding != ValueCoding::raw};
}

}  // namespace tulle
