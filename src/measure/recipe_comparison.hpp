// Times whole training steps of recipes against each other on the same gradients.
//
// How it works. Each recipe has a Synchronizer of its own, with its own residuals, and they *take turns*: in each
// repeat new gradients are drawn, and every recipe makes one step on a copy of them, in an order of the repeat's own,
// so that whatever disturbs the machine disturbs all. A step starts all parameters from the last to the first, as
// back-propagation produces them, and finishes them from the first on; its time is that of the slowest rank. `dense`
// is always one of them, and a recipe's *ratio* is the median over repeats of its time by dense's in the same repeat.
// The first steps of each recipe are *verified* and not timed. Where back-propagation is played, each parameter starts
// after its share of that time, in which the rank computes nothing: as if another processor did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.hpp"
#include "tulle/base/quartiles.hpp"
#include "tulle/gradient/step_log.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::measure {

struct RecipeComparisonSpec {
  std::vector<std::string> recipes;  ///< texts that parse_recipe() takes
  std::vector<gradient::Parameter> parameters;
  int repeats = 9;
  int warmup = 2;  ///< steps of each recipe before the timed ones. REQUIRES: at least 1
  std::uint64_t seed = 1;
  double deadline_seconds = 0;          ///< of each exchange; 0: the communicator's default
  double back_propagation_seconds = 0;  ///< of a step, shared out among parameters by size
  std::string steps_path;               ///< a file that a line is appended to for each timed step; empty: none
  std::string trace_path;               ///< of the recipe that was asked for. REQUIRES: it is one; empty: none
};

struct RecipeRow {
  std::string recipe;
  std::uint64_t values = 0;          ///< of all parameters
  std::uint64_t every = 1;           ///< local steps between two exchanges
  std::optional<Quartiles> seconds;  ///< of a step that exchanges; unset where the check failed
  std::optional<double> ratio;       ///< of a training step's time to dense's: seconds / every / dense's seconds
  double exposed_seconds = 0;        ///< median of what the slowest rank waited for exchanges in a step
  std::uint64_t bytes_sent_max = 0;  ///< of one rank in a step that exchanges, headers of messages included
  double density = 0;                ///< delivered values, of all, in the last step
  bool verified = false;
  std::string failure;  ///< why not
};

/// Steps of one comparison, for a progress line.
std::uint64_t steps_of(const RecipeComparisonSpec& spec);

/// The same rows on all ranks, `dense` first where it was not asked for. Collective; awaits, so that simulated ranks
/// may run it too. `progress` is for one rank alone. Throws bad_input for a text that is no recipe.
Task<std::vector<RecipeRow>> compare_recipes(Communicator communicator, const RecipeComparisonSpec& spec,
                                             Progress* progress = nullptr);

}  // namespace tulle::measure
