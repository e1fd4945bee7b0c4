// What `tulle plan` prints: a letter for the row that wins and how many times it beats the best dense one.
#pragma once

#include <span>
#include <string>

#include "tulle/tune/plan.hpp"

namespace tulle::cli {

enum class MapStyle { plain, colored };

/// One line for every number of ranks, one column for every density, then what the letters mean.
/// REQUIRES: cells as plan() gives them.
std::string plan_map(std::span<const PlanCell> cells, std::span<const double> densities, MapStyle style);

}  // namespace tulle::cli
