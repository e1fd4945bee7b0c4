// What `tulle train linear` prints and writes.
#pragma once

#include <span>
#include <string>

#include "cli/common/table.hpp"
#include "cli/train/train_flags.hpp"

namespace tulle::cli {

/// A line per epoch, and the header above them.
class EpochTable {
 public:
  explicit EpochTable(const TrainFlags& flags);
  std::string header() const { return table_.header(); }
  std::string row(const linear::EpochMetrics& metrics) const;

 private:
  Table table_;
  bool has_held_out_, has_accuracy_;
};

/// One finished training.
struct TrainRun {
  std::string aggregation;
  int ranks = 1;
  std::string transport;
  linear::TrainResult result;
};

std::string epoch_json(const TrainFlags& flags, const TrainRun& run, const linear::EpochMetrics& metrics);
/// Runs beside each other: loss, accuracy, seconds, communication, bytes, and how much faster than the first.
std::string comparison(std::span<const TrainRun> runs);

}  // namespace tulle::cli
