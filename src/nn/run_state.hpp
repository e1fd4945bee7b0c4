// Where a training is, and what of it is in a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/checkpoint.hpp"
#include "base/generations.hpp"
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

/// What has to be the same where a run goes on, by its name in messages. What comes after a colon and a blank is a list
/// that only tells what differs.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// What a checkpoint says about its arrays.
struct SavedRun {
  std::uint64_t run = 0;  ///< its number (base/generations.hpp)
  RunState state;
  std::string division;  ///< how samples are divided: where it differs, the epoch that was under way begins again
  std::uint64_t pipeline_bytes = 0;
};
std::string to_json(const SavedRun& run, const Facts& facts);
/// Throws bad_input naming the fact that differs. `path` is for the message.
SavedRun run_from_json(const std::string& json, const Facts& facts, const std::string& path);
/// Which run wrote it, after how many steps. Throws bad_input where it is no checkpoint of a deep network.
RunStep run_step_of(const CheckpointFile& file, const std::string& path);
/// What is at a path, whatever its facts are.
Generations generations_at(const std::string& path);

}  // namespace tulle::nn
