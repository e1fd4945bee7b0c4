// Split and allgather with dense blocks: what dsar_split_allgather and dense_split_allgather have in common.
#pragma once

#include "collectives/exchange.hpp"

namespace tulle {

/// Owners reduce their block into its place in a dense result; dense blocks are received into theirs. With a value
/// coding the sums, and on request the contributions, travel coded, and owners go on with what they decode themselves.
Task<Part> split_and_gather_dense(Exchange& exchange, Part mine);

}  // namespace tulle
