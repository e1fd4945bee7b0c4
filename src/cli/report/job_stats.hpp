// A running job as its stats lines tell it. docs/benchmarks.md gives the fields of a line.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tulle::cli {

/// One step of a job, or an epoch of a training, of one line. What the line does not have is unset.
struct StepStats {
  std::optional<std::uint64_t> step;  ///< or the epoch
  std::optional<double> steps;        ///< that the line is about, where it is not one
  std::optional<double> seconds;
  std::optional<double> bytes;  ///< sent by all ranks
  std::optional<double> density;
  std::optional<double> exposed_seconds;  ///< of the step, waiting for exchanges on the slowest rank
  std::optional<double> loss;
  std::optional<double> accuracy;
  std::vector<double> rank_seconds;  ///< by rank; may be empty
  bool is_epoch = false;             ///< of a training: steps, times and bytes are since its beginning
  std::string label;                 ///< which algorithm ran; printable
};

/// Reads a stats line, or a row of `tulle bench allreduce`, `tulle bench gradient` or `tulle train`; unset where it is
/// none of them.
std::optional<StepStats> parse_step_stats(std::string_view line);

struct SlowestRank {
  std::size_t rank = 0;
  double times_median = 1;  ///< its time by that of the median rank
};

/// What is known of a job so far. Rates are over the last `kWindow` steps: of fewer they jump, of more they lag.
class JobStats {
 public:
  static constexpr std::size_t kWindow = 64;

  void add(StepStats stats);

  bool is_empty() const { return steps_ == 0; }
  const StepStats& last() const { return window_.back(); }  ///< REQUIRES: !is_empty()
  std::uint64_t steps() const { return steps_; }
  double bytes() const { return bytes_; }
  /// Unset where lines do not say how long steps took.
  /// Of epochs where lines do not say how many steps they have.
  std::optional<double> steps_per_second() const;
  std::optional<double> bytes_per_second() const;
  /// By the sum over the window; unset where lines have no times of ranks.
  std::optional<SlowestRank> slowest_rank() const;
  std::vector<double> seconds_of_ranks() const;
  /// The window's values of one field, oldest first.
  std::vector<double> history(std::optional<double> StepStats::*field) const;

 private:
  std::optional<double> rate(double (*amount)(const StepStats&)) const;
  void take_difference(StepStats& stats);

  std::deque<StepStats> window_;
  std::uint64_t steps_ = 0;
  double bytes_ = 0;
  StepStats totals_;  // of the last epoch
};

}  // namespace tulle::cli
