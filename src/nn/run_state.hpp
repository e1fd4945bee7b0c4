// Where a training is, and what of it is in a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tulle/nn/options.hpp"

namespace tulle::nn {

/// Equal on all ranks but for the sums.
struct RunState {
  std::uint64_t epoch = 0;          ///< epochs that are over
  std::uint64_t step_of_epoch = 0;  ///< steps of the next one that are over
  std::uint64_t steps = 0;          ///< in all
  double best_loss = 0;             ///< held out, of the best epoch; 0: none yet
  int epochs_without_gain = 0;

  // This rank's.
  double loss_sum = 0;  ///< over the steps of this epoch
  double seconds = 0, exposed_seconds = 0, start_seconds = 0, bytes_sent = 0;
  double bytes_received = 0, pushed = 0, pulled = 0, dropped = 0;  ///< with a parameter server

  std::vector<EpochMetrics> epochs;
};

/// What has to be the same where a run goes on, by its name in messages.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// What a checkpoint says about its arrays.
struct SavedRun {
  RunState state;
  std::string division;  ///< how samples are divided: where it differs, the epoch that was under way begins again
  std::uint64_t pipeline_bytes = 0;
};
std::string to_json(const SavedRun& run, const Facts& facts);
/// Throws bad_input naming the fact that differs. `path` is for the message.
SavedRun run_from_json(const std::string& json, const Facts& facts, const std::string& path);

/// Of how many ranks there are files PATH.0-of-RANKS; 0: there are none. Throws bad_input where there are of several.
int ranks_on_disk(const std::string& path);

}  // namespace tulle::nn
