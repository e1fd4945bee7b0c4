// Which layers are small, middle and large: RedSync's choice by size, and the plan that tells it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// In values.
struct LayerBoundaries {
  std::uint64_t dense_below = 0;  ///< smaller ones travel whole
  std::uint64_t search_from = 0;  ///< larger ones are selected by threshold_binary_search; 0: none
};

/// Whether the recipe sends the parameter as it is, because of its size or role.
bool travels_whole(const Recipe& recipe, const Parameter& parameter);

/// The teams that so many ranks can make: as many as wanted, or the largest number below that divides the ranks.
/// What is pending is multiplied by this where another number of ranks goes on with it, so that as much is delivered as
/// would have been: a mean is over more ranks or over fewer. A mean of senders is over those who hold something, who
/// do not become more by newcomers.
double pending_factor(Aggregate aggregate, int old_ranks, int new_ranks);

int usable_teams(int teams, int ranks);

/// Throws bad_input where the recipe selects nothing, so that there is nothing to decide.
void require_selector(const Recipe& recipe);

/// RedSync's equations (tune/layer_sync.hpp) with what selecting takes here. Collective: the slowest rank's times
/// count, so that all ranks get the same. Takes some milliseconds. What it is given must outlive the task.
Task<LayerBoundaries> measure_boundaries(Communicator& communicator, const Recipe& recipe);

std::string text_of_plan(std::span<const PlanRow> rows, const Recipe& recipe, Boundaries boundaries);

}  // namespace tulle::gradient
