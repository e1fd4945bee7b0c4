// Handing a part down a binomial tree.
#pragma once

#include "collectives/exchange.hpp"
#include "collectives/patterns/binomial.hpp"

namespace tulle {

/// Sends the part to the rank's children, those with the largest subtrees first.
void pass_down(Exchange& exchange, const patterns::Binomial& tree, const Part& part, Step step);
/// The part that came from the parent, after it was passed on as it came.
Part open_and_pass_down(Exchange& exchange, const patterns::Binomial& tree, Incoming message, Step step);

}  // namespace tulle
