// Trains with a parameter server on simulated ranks and keeps everything that came out.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/server/server.hpp"
#include "tulle/server/worker.hpp"

namespace tulle::server::testing {

using Values = std::vector<float>;
using gradient::parse_recipe;

inline Values copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

inline std::vector<Parameter> sample_parameters() {
  return {{"hidden", 700, Role::hidden}, {"output", 130, Role::output}, {"bias", 10, Role::bias_or_norm}};
}

inline Values start_of(const Parameter& parameter) {
  Philox random(5, parameter.size);
  Values values(parameter.size);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

/// Of the loss |w − target|²/2, where every rank has a target of its own: ranks disagree, as with data of their own.
inline Values pull_to_target(int rank, std::uint64_t step, ParameterId id, std::span<const float> weights) {
  Philox common(7, id), own(11, (step * 64 + static_cast<std::uint64_t>(rank)) * 8 + id);
  Values gradient(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double target = 4 * common.uniform() - 2;
    gradient[i] = static_cast<float>(weights[i] - target + 0.2 * (own.uniform() - 0.5));
  }
  return gradient;
}

using GradientFunction =
    std::function<Values(int rank, std::uint64_t step, ParameterId id, std::span<const float> weights)>;

struct Job {
  int workers = 1;
  Options options = {};
  ServerOptions server_options = {};
  std::vector<Parameter> parameters = sample_parameters();
  std::uint64_t versions = 6;  ///< workers go on until every parameter has so many
  GradientFunction gradient = pull_to_target;
  std::uint64_t seed = 1;
  double max_delay_seconds = 0;  ///< datagrams overtake each other
  /// What a step computes for, before its pushes.
  std::function<double(int rank, std::uint64_t step)> compute_seconds = [](int, std::uint64_t) { return 1e-3; };
  std::vector<Slowed> stragglers = {};
  std::string resume_from = {};            ///< a checkpoint
  std::vector<Buffer> worker_states = {};  ///< by worker
  /// Called by a worker after it has pulled a parameter.
  std::function<void(int rank, ParameterId id, const Worker& worker, std::span<const float> weights)> after_pull = {};
  /// Asked by a worker before a step; true: it ends there, without a word.
  std::function<bool(int rank, std::uint64_t step)> dies = {};
};

struct Trained {
  std::vector<std::optional<Server>> servers;
  std::vector<std::vector<Values>> models;       ///< by worker and parameter
  std::vector<std::vector<Values>> push_errors;  ///< by worker and parameter
  std::vector<WorkerStats> stats;                ///< by worker
  std::vector<std::uint64_t> steps;              ///< by worker
  std::vector<Buffer> states;                    ///< by worker
  std::vector<std::vector<double>> pushed;       ///< by parameter: the sum of all gradients that were pushed
  std::vector<std::exception_ptr> errors;        ///< by rank
  double seconds = 0;
  std::vector<Worker> dead;  ///< workers that ended without a word
};

inline std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
  return "";
}

inline Task<> serve(Communicator& communicator, const Job& job, Trained& trained) {
  auto& server = trained.servers[static_cast<std::size_t>(communicator.rank())];
  server.emplace(Server::make(communicator, job.parameters, job.options, job.server_options));
  for (const ParameterId id : server->shard()) server->set_weights(id, start_of(job.parameters[id]));
  if (!job.resume_from.empty()) server->load_checkpoint(job.resume_from);
  Task<> running = server->await_run();
  co_await running;
}

inline bool is_behind(const Worker& worker, const Job& job) {
  for (ParameterId id = 0; id < job.parameters.size(); ++id) {
    if (worker.version(id) < job.versions) return true;
  }
  return false;
}

inline Task<> step_once(Communicator& communicator, const Job& job, Trained& trained, Worker& worker,
                        std::vector<Values>& weights, std::uint64_t step) {
  communicator.engine()->transport().charge(job.compute_seconds(communicator.rank(), step));
  for (ParameterId id = 0; id < weights.size(); ++id) {
    const Values gradient = job.gradient(communicator.rank(), step, id, weights[id]);
    for (std::size_t i = 0; i < gradient.size(); ++i) trained.pushed[id][i] += gradient[i];
    worker.push(id, gradient);
  }
  for (ParameterId id = static_cast<ParameterId>(weights.size()); id-- > 0;) {
    Task<> pulling = worker.await_pull(id, weights[id]);
    co_await pulling;
    if (job.after_pull) job.after_pull(communicator.rank(), id, worker, weights[id]);
  }
}

inline Task<> work(Communicator& communicator, const Job& job, Trained& trained) {
  const auto place = static_cast<std::size_t>(communicator.rank() - job.options.servers);
  Worker worker = Worker::make(communicator, job.parameters, job.options);
  if (!job.worker_states.empty()) worker.load_state(job.worker_states[place]);
  std::vector<Values>& weights = trained.models[place];
  std::vector<std::span<float>> spans;
  for (const Parameter& parameter : job.parameters) weights.emplace_back(parameter.size);
  for (Values& values : weights) spans.emplace_back(values);
  Task<> joining = worker.await_join(spans);
  co_await joining;
  for (std::uint64_t step = worker.version(0); is_behind(worker, job); ++step) {
    if (job.dies && job.dies(communicator.rank(), step)) {
      trained.dead.push_back(std::move(worker));
      co_return;
    }
    Task<> stepping = step_once(communicator, job, trained, worker, weights, step);
    co_await stepping;
    trained.steps[place] += 1;
  }
  for (ParameterId id = 0; id < job.parameters.size(); ++id) {
    trained.push_errors[place].push_back(copy_of(worker.push_error(id)));
  }
  trained.stats[place] = worker.stats();
  trained.states[place] = worker.save_state();
  Task<> leaving = worker.await_leave();
  co_await leaving;
}

inline void try_train(const Job& job, Trained& trained) {
  const auto workers = static_cast<std::size_t>(job.workers);
  trained.servers.resize(static_cast<std::size_t>(job.options.servers));
  trained.models.resize(workers);
  trained.push_errors.resize(workers);
  trained.stats.resize(workers);
  trained.steps.resize(workers);
  trained.states.resize(workers);
  for (const Parameter& parameter : job.parameters) trained.pushed.emplace_back(parameter.size);
  SimOptions sim{.ranks = job.options.servers + job.workers, .seed = job.seed};
  sim.faults.max_delay_seconds = job.max_delay_seconds;
  sim.network = flat_network(sim.profile);
  sim.network->stragglers = job.stragglers;
  SimWorld world(sim);
  trained.errors = world.try_run([&](Communicator& communicator) {
    return communicator.rank() < job.options.servers ? serve(communicator, job, trained)
                                                     : work(communicator, job, trained);
  });
  trained.seconds = world.elapsed_seconds();
}

inline void train(const Job& job, Trained& trained) {
  try_train(job, trained);
  for (const std::exception_ptr& error : trained.errors) EXPECT_EQ(message_of(error), "");
}

inline const Server& server_of(const Trained& trained, const Job& job, ParameterId id) {
  return *trained.servers[static_cast<std::size_t>(servers_of(job.parameters, job.options.servers)[id])];
}

/// The designs of 3LC's Table 1.
inline std::vector<std::string> designs() {
  return {"dense",  "int8",         "three_value_stochastic", "one_bit",         "sparse5",
          "local2", "three_lc:s=1", "three_lc:s=1.5",         "three_lc:s=1.75", "three_lc:s=1.9"};
}

}  // namespace tulle::server::testing
