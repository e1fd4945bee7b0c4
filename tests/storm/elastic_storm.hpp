// Storms over a training: simulated ranks train in run_elastic(), some die at any moment, the others repeat the step
// that not all of them have, and newcomers are let in after the first one. What they then hold is compared with a
// training in which ranks leave and come between two steps.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tulle/comm/agree.hpp"
#include "tulle/comm/sim.hpp"

namespace tulle::storm {

struct TrainedRecipe {
  const char* name;
  const char* recipe;
  bool is_exact = false;  ///< sums of integers, so that what is given is what is delivered and what stays, to the bit
};
/// For GoogleTest, which would print addresses.
inline void PrintTo(const TrainedRecipe& recipe, std::ostream* out) { *out << recipe.recipe; }

struct ElasticSchedule {
  int ranks = 3;      ///< of the job, with those that come later
  int newcomers = 0;  ///< the last ranks: they come where the others are all there
  std::uint64_t grow_every = 1;
  TrainedRecipe recipe = {"", ""};
  Quorum quorum = Quorum::majority;
  std::uint64_t seed = 1;
  SimFaults faults;
};

/// Deaths that are told at once or late, up to as many as leave a majority; messages that overtake each other.
ElasticSchedule random_elastic_schedule(std::uint64_t number, const TrainedRecipe& recipe);

struct ElasticOutcome {
  /// What is wrong; empty: nothing. Survivors whose models differ, or are not those of an undisturbed training; a
  /// residual that was lost or counted twice; a sum that is not what was given; a survivor that has not come through.
  std::string complaint;
  int dead = 0;
  int undone_begun = 0;      ///< steps that survivors repeated
  int undone_completed = 0;  ///< of these, such as they had completed
  int checked_sums = 0;      ///< of is_exact: steps whose members all lived to tell what they had given
  int joined = 0;            ///< newcomers that lived to the end as members
};
ElasticOutcome run(const ElasticSchedule& schedule);

std::string describe(const ElasticSchedule& schedule);

}  // namespace tulle::storm
