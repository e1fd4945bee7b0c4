// Recursive doubling over parts of any layout: what ssar_recursive_double and dense_recursive_double have in common.
#pragma once

#include "collectives/exchange.hpp"

namespace tulle {

/// ⌊log2 P⌋ rounds, and two more where P is no power of two: extra ranks fold in first and are told last.
/// Uses the steps from 0 on.
Task<Part> recursive_double(Exchange& exchange, Part mine);

}  // namespace tulle
