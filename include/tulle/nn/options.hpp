// What a training of a deep network is told, and what it tells: without tensors, for whoever only starts one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/comm/admission.hpp"
#include "tulle/gradient/recipe.hpp"
#include "tulle/gradient/step_log.hpp"
#include "tulle/gradient/synchronizer.hpp"
#include "tulle/gradient/training_trace.hpp"
#include "tulle/server/options.hpp"

#pragma GCC visibility push(default)
namespace tulle::nn {

/// What an update does to the weights. With a recipe that has momentum or weight decay of its own, that is left out
/// here, because the pipeline does it.
enum class OptimizerKind : std::uint8_t {
  sgd,  ///< v ← momentum·v + g + weight_decay·w; w ← w − rate·v (nesterov: rate·(g + weight_decay·w + momentum·v))
  adamw,  ///< Adam with decoupled weight decay
};
std::string_view to_string(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0;  ///< of sgd
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< of adamw
};

/// How the rate changes over a training.
enum class Schedule : std::uint8_t {
  constant,
  step,    ///< a tenth of it from 50 % of the steps on, a hundredth from 75 % on
  cosine,  ///< down to 0 along half a period of the cosine
};
std::string_view to_string(Schedule schedule);
/// Throws bad_input that lists the allowed names.
Schedule schedule_from(std::string_view name);

struct ScheduleOptions {
  Schedule schedule = Schedule::constant;
  double warm_up_epochs = 0;  ///< the rate grows in a line from 0 for so long
};
/// The factor of the rate in a step, from 0 on, of `steps` in all.
double schedule_factor(const ScheduleOptions& options, std::uint64_t step, std::uint64_t steps,
                       std::uint64_t steps_of_epoch);

/// What becomes of the running means and variances of BatchNorm, which every rank gathers from its own samples.
enum class Buffers : std::uint8_t {
  rank0,    ///< all take those of rank 0, as 3LC's workers do, before every evaluation
  average,  ///< all take the mean over ranks
};
std::string_view to_string(Buffers buffers);

struct CheckpointOptions {
  std::string path = {};  ///< rank r of P writes PATH.r-of-P; empty: none
  double seconds = 60;    ///< between two; not with a parameter server
  bool resume = false;    ///< go on from there, where there is one
  /// With a parameter server: steps between two; 0: an epoch. Servers write PATH.server.s-of-S, workers
  /// PATH.worker.w-of-W.
  std::uint64_t steps = 0;
};

/// A parameter server (tulle/server) in place of sums among all ranks. The recipe says how gradients are pushed, and
/// how changes of the model are pulled unless `pull` does; the optimizer is SGD on the servers.
struct ServerUse {
  int servers = 0;              ///< the first ranks hold the weights, all others are workers and compute; 0: no server
  int backup = 0;               ///< a step does not wait for so many of the workers; what comes late is dropped
  double grace_seconds = 0;     ///< it waits so long for them, once the others are in
  std::uint64_t staleness = 0;  ///< how many versions old the model may be that a gradient is of
  std::optional<gradient::Recipe> pull = {};
  bool weighs_pushes = false;     ///< a gradient counts by the predictions that it is of, such as words; else equally
  double deadline_seconds = 300;  ///< how long a worker waits for an answer, and a server for any worker
  /// Rank 0 lets in processes there that take the places of workers that were lost; on TCP. Set on all ranks or none.
  std::optional<DoorOptions> door = {};
  /// What the samples are, in words and on one line: a worker with other words is refused. train() gives their number
  /// and checksum.
  std::string data = {};
  /// Of a process that was let in; its communicator is what server::take_place() gave.
  std::optional<server::Place> place = {};
};

/// How good a network is on samples that were not trained on.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;       ///< share of the predictions that are right
  double top5_accuracy = 0;  ///< … that have the right answer among their five likeliest ones
  double samples = 0;        ///< predictions
};

/// Numbers since the beginning of the run, resumed parts included, except loss and rate.
struct EpochMetrics {
  int epoch = 0;  ///< from 1
  std::uint64_t steps = 0;
  double loss = 0;             ///< mean over the epoch's steps, each before its update
  Evaluation held_out;         ///< after the epoch
  double seconds = 0;          ///< of training without evaluation, of the slowest rank
  double exposed_seconds = 0;  ///< of them, waiting for exchanges that computing did not hide: mean over ranks
  double start_seconds = 0;    ///< of them, accumulating, selecting and coding: mean over ranks
  double bytes_sent = 0;       ///< of indices and values, mean over ranks
  double rate = 0;             ///< of the last step

  // With a parameter server; means are over workers then.
  double bytes_received = 0;  ///< of what was pulled, mean
  double pushed = 0, pulled = 0,
         dropped = 0;  ///< pushes, pulls that brought something, pushes too late: of all workers
  int workers = 0;     ///< that have reported this epoch
};

struct TrainerOptions {
  gradient::Recipe recipe = {};  ///< default: dense
  /// `seed` is replaced by that below. Rows are chosen by options alone, so that a run can be repeated bit for bit;
  /// without `reproducible` they are chosen by time as well. Weights are compared in every 100th step: not by a
  /// parameter server.
  gradient::SynchronizerOptions synchronizer{.reproducible = true, .weights_check_every = 100};
  OptimizerOptions optimizer = {};
  ScheduleOptions schedule = {};
  double rate = 0.05;        ///< of one rank
  bool scale_rate = true;    ///< times the number of ranks, as the batch is; not with local steps
  std::uint32_t batch = 64;  ///< samples of a rank in a step
  int epochs = 1;
  std::uint64_t steps_of_epoch = 0;  ///< at most; 0: as many as the samples give
  /// Exchanges start while back-propagation goes on, and an update is waited for just before the next forward pass uses
  /// the parameter. They make progress meanwhile where the communicator has a progress thread; without, whenever
  /// another one is started. The bits are the same in every case.
  bool overlap = true;
  double clip_norm =
      0;  ///< bound on the L2 norm of the mean gradient; ranks use P^-1/2 of it and do not overlap; 0: none
  Buffers buffers = Buffers::rank0;
  int patience = 0;  ///< stop after so many epochs without a better held-out loss; 0: never
  std::uint32_t evaluation_batch = 500;
  std::uint64_t seed = 1;  ///< of the order of samples and of everything random
  CheckpointOptions checkpoint = {};
  ServerUse server = {};
  /// Files about every exchange, as StepLog writes them. Updates are then waited for at the end of a step. Not with a
  /// parameter server.
  gradient::StepLogOptions step_log = {};

  std::function<bool()> stop_requested = {};  ///< asked on every rank in every step, from the rank's thread
  std::function<void(const EpochMetrics&)> on_epoch = {};  ///< on rank 0, as the others
  std::function<void(std::uint64_t done, std::uint64_t all)> on_step = {};
  std::function<void(const std::string&)> on_message = {};  ///< what a user should know
  /// At the end: what a step of this rank computed, for `tulle simulate --trace`. Set on rank 0 or nowhere else.
  std::function<void(const gradient::TrainingTrace&)> on_trace = {};
};

struct TrainResult {
  std::vector<EpochMetrics> epochs;
  bool was_stopped = false;  ///< by stop_requested
  bool was_resumed = false;
  std::string checkpoint_error;          ///< why the last checkpoint was not written; empty where it was
  std::string report;                    ///< of the pipeline: what it cost, on one screen
  std::vector<std::string> losses = {};  ///< workers of a parameter server that were lost, with the reason; on rank 0
};

}  // namespace tulle::nn
#pragma GCC visibility pop
