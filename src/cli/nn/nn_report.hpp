// What `tulle train nn` prints and writes.
#pragma once

#include <span>
#include <string>

#include "cli/common/table.hpp"
#include "cli/nn/nn_flags.hpp"

namespace tulle::cli {

/// One training.
struct NnRun {
  std::string recipe;  ///< as it was typed
  int ranks = 1;
  std::string transport;
  nn::TrainResult result;
};

/// "4 ranks", or who serves and who computes.
std::string nn_ranks_text(const NnFlags& flags, int ranks);
/// Whose running means of BatchNorm are measured with: rank0, average, or each worker's own.
std::string_view nn_batch_norm(const NnFlags& flags);
Table nn_epoch_table(const NnFlags& flags);
std::vector<std::string> nn_epoch_cells(const NnFlags& flags, const nn::EpochMetrics& metrics);
std::string nn_epoch_json(const NnFlags& flags, const NnRun& run, const nn::EpochMetrics& metrics);
/// Runs beside each other: accuracy, loss, time, exposed waiting, bytes, and how much better than the first.
std::string nn_comparison(std::span<const NnRun> runs);

}  // namespace tulle::cli
