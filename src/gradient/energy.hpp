// How many of a gradient's values carry a share of its energy, which is the sum of its squares.
#pragma once

#include <span>

namespace tulle::gradient {

/// The smallest share of the values whose squares make up `share` of all squares, as far as a sample tells; one value
/// at least. REQUIRES: finite values; 0 < share <= 1. Reads at most 2^18 values, in blocks that are spread evenly: the
/// same ones in every call.
double density_for_energy(std::span<const float> values, double share);

}  // namespace tulle::gradient
