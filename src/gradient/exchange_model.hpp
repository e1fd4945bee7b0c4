// What exchanges of a parameter take by the cost functions of rows and what rows are chosen by: equal on all ranks.
#pragma once

#include "collectives/choice_basis.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// Of all its values, by the fastest dense row.
double whole_exchange_seconds(const Communicator& communicator, ChoiceBy by, std::uint64_t values);

/// Whether dense_ring is as fast as the fastest dense row, or so close that the model cannot tell.
bool ring_keeps_up(const Communicator& communicator, ChoiceBy by, std::uint64_t values);

/// As the recipe says, with `density` in place of its own where it selects by one. Selecting itself is counted only for
/// rows that select while they communicate.
double recipe_exchange_seconds(const Communicator& communicator, ChoiceBy by, const Recipe& recipe,
                               const Parameter& parameter, double density);

}  // namespace tulle::gradient
