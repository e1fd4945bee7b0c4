// What every solver needs around its steps: epochs, metrics, early stopping, checkpoints.
#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checkpoint.hpp"
#include "base/file_lock.hpp"
#include "base/generations.hpp"
#include "linear/facts.hpp"
#include "linear/group.hpp"
#include "linear/replicas.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::linear {

/// Where a run is. Equal on all ranks, and part of checkpoints.
struct Position {
  int epoch = 0;                    ///< epochs that are over
  std::uint64_t step_of_epoch = 0;  ///< steps of the next one that are over
  std::uint64_t steps = 0;          ///< in all
  double rate = 0;                  ///< of the schedules that change it by epochs
  double loss_sum = 0;              ///< of the rows of this epoch so far
  double rows = 0;
  double best_loss = 0;  ///< for early stopping
  int epochs_without_gain = 0;
  double previous_loss = 0;  ///< for the bold driver
};

/// A solver at work.
class Method {
 public:
  virtual ~Method() = default;
  /// From the session's position to the end of the epoch, or to where all ranks agree to stop.
  virtual Task<> run_epoch() = 0;
  /// Mean loss of the epoch that has ended, without the penalty; may be what was seen on the way. May communicate.
  virtual Task<double> epoch_loss() = 0;
  /// Mean loss of all rows by the model as it is, without the penalty. May communicate, and read all rows.
  virtual Task<double> loss() = 0;
  virtual std::shared_ptr<const Snapshot> snapshot() = 0;
  /// The row of the registry that its collectives run, or auto.
  virtual std::string row() const = 0;
  /// The arrays of a checkpoint.
  virtual std::vector<std::span<std::byte>> state() = 0;
  /// state() was filled from a checkpoint.
  virtual void restored() {}
};

class Session {
 public:
  Session(Communicator communicator, const TrainOptions& options);

  Group group;
  const TrainOptions& options;
  Facts facts;
  Position position;
  bool is_stopping = false;      ///< all ranks agreed to
  bool saves = false;            ///< all ranks agreed to write a checkpoint
  std::exception_ptr failure{};  ///< of this rank alone; a vote to stop

  /// Runs epochs until one of the reasons to end.
  /// `least_useful` is the loss of a model without features.
  Task<TrainResult> run(Method& method, Dataset* held_out, double least_useful);

  /// What this rank votes: 1 for yes.
  float votes_to_stop() const { return failure || (options.stop_requested && options.stop_requested()) ? 1.0f : 0.0f; }
  float votes_to_save() const;
  /// Sets `failure`, unless it is set: no finite number is left to go on from.
  void fail_as_diverged();
  /// Rank 0 writes the checkpoint, unless the training has diverged. REQUIRES: nothing is in flight.
  void save(Method& method);
  void tell(const std::string& message) const;
  void tell_step(std::uint64_t steps_of_epoch);
  /// A model of zeros with the right shape.
  LinearModel empty_model() const;

 private:
  Task<> begin_checkpoints();
  Task<> resume(Method& method);
  void require_finite(const Snapshot& snapshot);
  Task<std::optional<double>> final_objective(Method& method, double least_useful);
  std::vector<double> choose_generation();
  void restore_from(const std::string& file_path, const RunStep& chosen, Method& method);
  Task<> finish_epoch(Method& method, Dataset* held_out);
  bool has_converged(const EpochMetrics& metrics);
  std::string describe() const;
  void restore(const std::string& description);
  void restore(const nlohmann::json& json);

  std::vector<EpochMetrics> epochs_;
  double train_seconds_ = 0;
  double saved_at_ = 0;
  EpochMetrics before_resume_;  // its seconds and bytes are those of earlier jobs
  bool was_resumed_ = false;
  std::string checkpoint_error_;
  std::optional<FileLock> lock_;  // rank 0's, on what it writes
  std::uint64_t run_ = 0;         // this job's number, in every checkpoint that it writes
  GenerationWriter writer_;       // rank 0's
  std::string left_out_;          // why the newest file on disk is not what it goes on from
};

}  // namespace tulle::linear
