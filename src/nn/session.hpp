// A training at work: steps, exchanges, epochs, evaluation, checkpoints. It sees a network as arrays.
//
// A step: the learner runs forward and back and hands over each gradient as it is ready, the last layer's first. The
// synchronizer starts its exchange at once, while the layers before are still being computed (`overlap`). While the
// last of them travel the next batch is made and the next forward pass begins: an update is waited for and applied just
// before that pass uses its parameter. Without overlap, and at the end of an epoch, all are taken at the step's end.
//
// With local steps (recipe.every > 1) a rank applies its own gradients, and at every H-th step and at the end of an
// epoch what is exchanged is how far it has come: Δ = θ_before − θ_now.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.hpp"
#include "nn/optimizer.hpp"
#include "nn/step_recorder.hpp"
#include "nn/training.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::nn {

class Session final : public Training {
 public:
  /// Collective. The weights become those of rank 0 where they differ. The learner must outlive the session. Throws
  /// mismatch on all ranks naming an option that they do not have alike, and bad_input naming one that is out of
  /// bounds.
  Session(const Communicator& communicator, Learner& learner, const TrainerOptions& options);

  TrainResult train() override;
  Evaluation evaluate() override;

 private:
  using Clock = std::chrono::steady_clock;

  void agree_on_weights();
  void compare_weights();
  void take_buffers_of_rank0();
  void run_epoch();
  void step();
  void start(std::size_t parameter, std::span<const float> gradient);
  void start_all();
  void take(std::size_t parameter, std::span<const float> gradient);
  void tell_trace() const;
  void exchange_gradients();
  void step_alone();
  void exchange_changes();
  void end_exchange();
  void finish(std::size_t parameter);
  void finish_all();
  void finish_in_time();
  void apply_gradient(std::size_t parameter);
  void apply_change(std::size_t parameter);
  template <class Work>
  void guard(Work work);
  template <class Work>
  auto told_to_all(Work work);
  void log_exchange(double loss);
  void count(std::size_t parameter);
  void prepare_next();
  void prepare(std::uint64_t step);
  double weight_of(std::uint64_t step);
  bool sums_gradients() const;
  void agree_on_stop();
  double rate_now() const;

  void finish_epoch();
  void agree_on_buffers();
  void note_gain();
  bool has_converged() const;
  bool is_over() const;

  Facts facts() const;
  std::string division() const;
  std::string checkpoint_path(int rank, int ranks) const;
  std::vector<std::span<std::byte>> arrays();
  void begin_run();
  void save();
  void write_files();
  void resume();
  int ranks_to_resume() const;
  std::vector<Generations> files_of(int ranks) const;
  std::vector<Generations> files_of_all();
  void restore(std::span<const Generations> files, const RunStep& what);
  std::uint32_t checksum_of_weights();
  void require_equal_weights();
  void tell_where_it_goes_on() const;
  Buffer restore_from(const std::string& path);
  void tell(const std::string& message) const;

  Communicator communicator_;
  Communicator votes_;  // an order of its own: these travel beside the gradients
  Learner& learner_;
  TrainerOptions options_;
  std::vector<gradient::Parameter> parameters_;
  gradient::Synchronizer synchronizer_;
  std::optional<gradient::StepLog> log_;
  Optimizer optimizer_;
  Sharding sharding_;
  std::uint64_t steps_of_epoch_;
  bool starts_early_;                       // gradients are handed over during back-propagation
  std::vector<std::vector<float>> before_;  // local steps: θ at the last exchange
  std::vector<float> update_;               // of the parameter that is being finished
  std::vector<bool> is_pending_;            // parameters whose updates were not applied yet
  double rate_ = 0;                         // that they are applied with
  double weight_ = 1;                       // of the gradient that is being computed
  std::exception_ptr failure_;              // of a hand-over, which is in the middle of foreign code
  std::optional<StepRecorder> recorder_;    // where a trace is asked for

  RunState state_;
  Request<std::vector<double>> vote_;
  bool is_stopping_ = false;
  bool was_resumed_ = false;
  std::string checkpoint_error_;
  Clock::time_point saved_at_;
  std::optional<FileLock> lock_;  // rank 0's, on what the job writes
  std::uint64_t run_ = 0;         // this job's number, in every file that it writes
  GenerationWriter writer_;
};

}  // namespace tulle::nn
