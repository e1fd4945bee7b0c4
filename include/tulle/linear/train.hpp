// Training of linear models on any communicator: MPI-OPT of SparCML, by SGD or by coordinate descent.
//
// SGD: each rank computes the gradient of its mini-batch, the ranks sum them by an allreduce, and each applies the sum
// to its copy of the weights. SCD: each rank updates some of its slice of the coordinates, and an allgather tells the
// others. Both minimize the mean loss plus the penalty.
//
// Threads: any thread may call, one at a time on a channel; no other may use the data until the call is over. The
// rank's work, and the callbacks, run on the thread that drives the engine: the progress thread where there is one,
// else the caller's. Collective; REQUIRES: equal options on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/linear/dataset.hpp"
#include "tulle/linear/model.hpp"
#include "tulle/linear/replicas.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

enum class Solver { sgd, scd };

/// The learning rate of step t (from 0) of epoch e (from 0), from the first rate η and the decay d.
enum class Schedule {
  constant,             ///< η
  step,                 ///< η·d^e
  inverse,              ///< η / (1 + d·t)
  inverse_square_root,  ///< η / √(1 + d·t)
  bold_driver,          ///< 5 % more after an epoch whose loss fell, half after one whose loss rose
  adagrad,  ///< η / √(Σ g²), for each weight apart, in units of its feature (and of what squares predict)
};
std::string_view to_string(Schedule schedule);
/// Throws bad_input that lists the allowed names.
Schedule schedule_from(std::string_view name);

/// 0.2 for logistic and hinge, 0.08 for squared_hinge, 0.05 for squares.
double default_rate(Loss loss);

/// How good a model is on rows that were not trained on. `loss` leaves the penalty out.
struct Evaluation {
  double rows = 0;
  double loss = 0;
  double accuracy = 0;        ///< 0 for squares
  std::optional<double> auc;  ///< area under the ROC curve, exact; none unless rows of two classes were there
};

struct EpochMetrics {
  int epoch = 0;  ///< from 1
  std::uint64_t steps = 0;
  double objective = 0;  ///< mean loss and penalty; of SGD *running*: of the epoch's batches, each before its step
  double penalty = 0;    ///< what of it is the penalty, at the end of the epoch
  double seconds = 0;    ///< of training alone, of the slowest rank, since the beginning
  double communication_seconds = 0;  ///< of them, waiting for collectives: mean over ranks
  double bytes = 0;                  ///< sent, mean over ranks, since the beginning
  bool has_estimated_bytes = false;  ///< the least that MPI's own allreduce can send, which it does not tell
  double rate = 0;
  std::optional<Evaluation> held_out;
};

struct CheckpointOptions {
  std::string path = {};  ///< empty: none
  double seconds = 60;    ///< between two
  bool resume = false;    ///< go on from `path` where it exists
};

struct TrainOptions {
  Solver solver = Solver::sgd;
  Loss loss = Loss::logistic;
  Penalty penalty = {};
  bool intercept = true;
  bool balanced = false;                       ///< weigh classes by the inverse of their share
  std::map<float, double> class_weights = {};  ///< by label; others weigh 1
  int epochs = 10;
  double tolerance = 0;  ///< stop when the loss (held out, where there is some) falls by a smaller share than this …
  int patience = 2;      ///< … for so many epochs

  std::uint32_t batch_rows = 0;  ///< at most, of each rank in a step; 0: 1/100 of its rows, at most 1000
  double rate = 0;               ///< 0: see default_rate()
  double decay = 0.1;
  Schedule schedule = Schedule::adagrad;
  std::string aggregation = "auto";  ///< auto, sparse, dense (MPI's own where there is one) or a row of the registry
  int staleness = 0;                 ///< τ: steps that may begin before the sum or gather of this one is applied
  bool shuffle = true;

  std::uint32_t coordinates = 0;  ///< SCD: updates of each rank in an iteration; 0: 1/32 of its own, at most 100
  double damping = 0;  ///< SCD: how many ranks are taken to move coordinates of a row at a time; 0: what the data says

  std::uint64_t seed = 1;
  int threads = 1;  ///< of each rank; 0: see default_threads()
  CheckpointOptions checkpoint = {};
  std::shared_ptr<Replicas> replicas = {};  ///< simulated ranks that run SGD without staleness may share one

  std::function<bool()> stop_requested = {};                                ///< asked between steps, on every rank
  std::function<void(const EpochMetrics&)> on_epoch = {};                   ///< on rank 0
  std::function<void(std::uint64_t done, std::uint64_t all)> on_step = {};  ///< on rank 0
  std::function<void(std::uint64_t rows)> on_labels = {};                   ///< on rank 0, while it looks at all labels
  std::function<void(const std::string&)> on_message = {};                  ///< on rank 0, what a user should know
};

struct TrainResult {
  LinearModel model;  ///< the same on all ranks; with `replicas` on rank 0 alone
  std::vector<EpochMetrics> epochs;
  std::optional<double> objective;  ///< of the model on all rows, and penalty; none where the run was stopped
  bool was_stopped = false;         ///< by stop_requested
  bool was_resumed = false;
  std::string checkpoint_error;  ///< on rank 0, why the last checkpoint was not written; empty where it was
  std::string algorithm;         ///< the row that aggregation meant
};

/// Trains on the parts that the ranks hold; `held_out` may be null. For SCD every rank holds all of the data.
/// Throws bad_input naming the option that is out of bounds, or why data or checkpoint cannot be used.
/// An epoch of SGD is a pass over the data. A rank takes memory for a few numbers a weight (vectors × features) and for
/// the data that it keeps.
TrainResult train(Communicator& communicator, Dataset& data, Dataset* held_out, const TrainOptions& options);
/// The same inside a program, for simulation. The data must outlive the task.
Task<TrainResult> train_task(Communicator communicator, Dataset& data, Dataset* held_out, TrainOptions options);

/// `model`, equal on all ranks, on the rows of all ranks: one pass over the data. Blocks.
Evaluation evaluate(Communicator& communicator, Dataset& data, const LinearModel& model);

}  // namespace tulle::linear
#pragma GCC visibility pop
