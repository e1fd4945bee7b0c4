// Parts of an allgather that are blocks of one vector.
#pragma once

#include <span>

#include "collectives/exchange.hpp"

namespace tulle {

/// True where the ranges of `parts` cover the dimension one after the other, and false where each covers all of it.
/// Throws bad_input naming the first rank whose range does neither; all ranks see the same parts and throw alike.
bool are_blocks(std::span<const Part> parts);

}  // namespace tulle
