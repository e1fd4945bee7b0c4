// Which row a call gets, and what auto keeps of it.
#pragma once

#include "collectives/shape.hpp"
#include "tulle/comm/communicator.hpp"

namespace tulle {

/// What the costs of a call depend on. `state`, where given, says what earlier calls had.
CostInput cost_input(const Communicator& communicator, const Shape& shape, const CallOptions& options,
                     const AlgorithmState* state);

struct ChosenRow {
  const Algorithm& row;
  bool by_auto;
};
/// The row that the options name, else the one of TULLE_ALGORITHM, else the one that auto chooses. `base` is
/// cost_input() without a state.
ChosenRow choose_row(OperationKind kind, const CostInput& base, const Shape& shape, const CallOptions& options,
                     const AlgorithmState* state);
/// True where choose_row() asks auto.
bool is_left_to_auto(OperationKind kind, const Shape& shape, const CallOptions& options);

/// True where a call of the row with that state teaches auto something.
bool teaches(const Algorithm& algorithm, const AlgorithmState* state);

/// A call that is over, as auto looks at it.
struct Lesson {
  const Algorithm& row;
  bool by_auto;
  const CallOptions& options;
  CostInput shape;  ///< what its costs depend on, but for the data
  double seconds;   ///< that it took on this rank; 0 where that means nothing
  Ticks last_call;  ///< how long the call before took, on the slowest rank
};
void learn(AlgorithmState& state, const Lesson& lesson, const Outcome& outcome);

}  // namespace tulle
