// A call that is not made: what its cost depends on, in the words of CallOptions.
//
// Threads: pure functions, for any thread; O(1).
#pragma once

#include <cstdint>
#include <string>

#include "tulle/collectives/registry.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct PlannedCall {
  int ranks = 8;
  int ranks_per_node = 1;
  std::uint64_t dimension = std::uint64_t{1} << 24;
  double density = 0.01;        ///< of one rank's stream, indices drawn uniformly
  Takes takes = Takes::stream;  ///< accumulator: density is what is to be delivered
  ValueType type = ValueType::f32;
  std::string index_coding{kAuto};
  ValueCodec value_coding = {};
  int teams = 1;
  Profile profile = {};
};

/// What auto would look at in the first such call. Throws bad_input naming the field that is out of bounds. The result
/// views nothing of `call`.
CostInput cost_input(const PlannedCall& call);
RowNeeds row_needs(const PlannedCall& call);

}  // namespace tulle
#pragma GCC visibility pop
