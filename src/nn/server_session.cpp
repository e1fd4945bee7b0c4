#include "nn/server_session.hpp"

#include <fmt/format.h>

#include "nn/job_settings.hpp"
#include "nn/server_host.hpp"
#include "nn/server_worker.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::nn {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorKind::bad_input, "parameter server: " + reason);
}

void require_fits(const TrainerOptions& options, std::size_t parameters) {
  validate(options);
  const OptimizerOptions& optimizer = options.optimizer;
  if (optimizer.kind != OptimizerKind::sgd) refuse("the optimizer is SGD on the servers, and not adamw");
  if (optimizer.nesterov) refuse("its SGD has no Nesterov form: leave nesterov out");
  if (!options.step_log.lines.empty() || !options.step_log.trace.empty()) {
    refuse("a log of steps is about sums among all ranks: leave step_log out");
  }
  if (options.patience > 0) refuse("workers do not agree on an early stop: leave patience out");
  if (options.server.servers < 0) refuse(fmt::format("{} servers", options.server.servers));
  if (static_cast<std::size_t>(options.server.servers) > parameters) {
    refuse(fmt::format("{} servers for {} parameters, which are not divided", options.server.servers, parameters));
  }
  if (options.checkpoint.steps % options.recipe.every != 0) {
    refuse(fmt::format("a checkpoint every {} steps, of which {} make a version", options.checkpoint.steps,
                       options.recipe.every));
  }
}

server::Options server_options(const TrainerOptions& options) {
  const ServerUse& use = options.server;
  return {.servers = use.servers,
          .backup = use.backup,
          .grace_seconds = use.grace_seconds,
          .staleness = use.staleness,
          .push = options.recipe,
          .pull = use.pull,
          .seed = options.seed,
          .deadline_seconds = use.deadline_seconds};
}

// A worker that differed in these, such as one that comes later with other flags, would compute on other samples than
// it is taken to.
std::string description_of(const ServerJob& job) {
  const TrainerOptions& options = job.options;
  return fmt::format(
      "batches of {}, {} steps of an epoch, {} epochs, clipped at {}, weights by {}, {} samples and {} held out, "
      "buffers {:08x}{}{}",
      options.batch, job.steps_of_epoch, options.epochs, options.clip_norm,
      options.server.weighs_pushes ? "predictions" : "worker", job.learner.train_samples(), job.learner.test_samples(),
      checksum_of_buffers(job.learner, 0), options.server.data.empty() ? "" : ", ", options.server.data);
}

ServerJob job_of(Communicator communicator, Learner& learner, const TrainerOptions& options) {
  // A newcomer has no step of theirs; its worker tells the servers what it computes on.
  if (!options.server.place) require_same_settings(communicator, server_settings(options));
  ServerJob job{.communicator = communicator,
                .learner = learner,
                .options = options,
                .server = server_options(options),
                .parameters = learner.parameters(),
                .place = options.server.place.value_or(server::Place{communicator.rank(), communicator.size()})};
  require_fits(options, job.parameters.size());
  server::validate(job.server, job.place.ranks);
  const std::string transport = job.communicator.engine()->transport().name();
  if (options.server.door && transport != "tcp") refuse(fmt::format("a door is for TCP, and not for {}", transport));
  const Sharding sharding(learner.train_samples(), job.workers(), options.batch, options.seed);
  job.steps_of_epoch = nn::steps_of_epoch(sharding, options);
  if (job.versions() == 0) refuse("there are fewer steps than one push takes");
  job.server.job = description_of(job);
  return job;
}

}  // namespace

std::uint64_t ServerJob::checkpoint_steps() const {
  if (options.checkpoint.steps > 0) return options.checkpoint.steps;
  return std::max(every(), steps_of_epoch / every() * every());
}

// Gradients are a mean, and the batch grows with those that a step waits for.
double ServerJob::factor(std::uint64_t version) const {
  const double batches = options.scale_rate ? workers() - server.backup : 1;
  return rate_factor(options, version * every(), steps_of_epoch) * batches;
}

ServerSession::ServerSession(const Communicator& communicator, Learner& learner, const TrainerOptions& options)
    : job_(job_of(communicator, learner, options)) {}

TrainResult ServerSession::train() {
  const bool is_newcomer = job_.options.server.place.has_value();
  if (job_.options.server.door && !is_newcomer) job_.servers = job_.communicator.split(is_server() ? 0 : 1);
  if (is_server()) return ServerHost(job_).run();
  return ServerWorker(job_).run();
}

Evaluation ServerSession::evaluate() {
  HeldOutSums mine;
  const int worker = job_.place.rank - job_.server.servers;
  if (!is_server()) mine = evaluate_share(job_.learner, worker, job_.workers(), job_.options.evaluation_batch);
  return combine_held_out(job_.communicator, mine).mean();
}

}  // namespace tulle::nn
