// The network that rows are chosen for.
#pragma once

#include "tulle/collectives/cost_input.hpp"
#include "tulle/comm/communicator.hpp"

namespace tulle {

/// What rows are chosen by.
enum class ChoiceBy {
  profile,  ///< the communicator's profile, whoever it is from
  /// The same where it was given: loaded from a file, set, or that of a simulation. What a transport has by default is
  /// a guess about this machine and differs between threads, MPI and TCP, as sums then would in their last bits. In
  /// its place are constants that are the same everywhere.
  given_profile,
};
inline ChoiceBy choice_by(bool reproducible) { return reproducible ? ChoiceBy::given_profile : ChoiceBy::profile; }

/// Ranks, nodes and profile of the communicator as `by` sees them; the rest is as by default.
CostInput choice_basis(const Communicator& communicator, ChoiceBy by);

}  // namespace tulle
