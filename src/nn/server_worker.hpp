// A worker rank of a training with a parameter server.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/checkpoint.hpp"
#include "nn/server_session.hpp"
#include "nn/worker_report.hpp"
#include "tulle/comm/datagram.hpp"
#include "tulle/server/worker.hpp"

namespace tulle::nn {

class ServerWorker {
 public:
  /// The job must outlive it.
  explicit ServerWorker(ServerJob& job);

  /// To the last version of the model, or to where it is asked to stop. Throws peer_failed that names a server that is
  /// gone or refuses.
  TrainResult run();

 private:
  int place() const { return job_.place.rank - job_.server.servers; }
  bool is_newcomer() const { return job_.options.server.place.has_value(); }
  void train();
  void join();
  void require_one_step() const;
  std::uint64_t least_version() const;
  void begin_at_the_others();
  void step();
  void prepare_next();
  void pull(std::size_t parameter);
  void pull_all();
  void push(std::size_t parameter, std::span<const float> gradient);
  void push_all();
  double weight() const;
  void skip_rest();
  void catch_up();
  template <class Work>
  void guard(Work work);

  void finish_epoch(int epoch);
  WorkerReport report_now() const;
  void send(const WorkerMessage& message);
  void leave();

  Facts facts() const;
  std::string path() const;
  std::string files() const;
  std::vector<std::span<std::byte>> arrays();
  void save();
  void restore();
  void restore_from(const std::string& file_path);

  ServerJob& job_;
  Learner& learner_;
  Sharding sharding_;
  server::Worker worker_;
  DatagramPort reports_, run_news_;
  bool starts_early_;
  bool has_caught_up_ = false;    // in this step
  std::vector<bool> has_pushed_;  // in this step
  std::vector<float> clipped_;    // of the gradient that is being pushed
  std::exception_ptr failure_;    // of a hook, which is in the middle of foreign code
  RunState state_;                // `steps` counts; epoch and step_of_epoch are not used
  double loss_steps_ = 0;         // of this epoch
  bool is_stopping_ = false;
  std::string checkpoint_error_;
  std::uint64_t run_ = 0;         // this job's number, in every file that it writes
  std::uint64_t loaded_run_ = 0;  // that of the servers' files; 0: none
  GenerationWriter writer_;
};

}  // namespace tulle::nn
