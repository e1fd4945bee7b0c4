#include "nn/server_host.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/generations.hpp"
#include "comm/thrown.hpp"
#include "nn/run_news.hpp"
#include "tulle/base/error.hpp"

namespace tulle::nn {
namespace {

// How often rank 0 looks at its server for progress, losses and its end. Longer is felt at the end of short runs;
// shorter keeps a core awake.
constexpr double kLookSeconds = 0.02;
// Reports travel beside the letters of leaving, and may be overtaken by them.
constexpr double kLastReportsSeconds = 5;

}  // namespace

ServerHost::ServerHost(ServerJob& job)
    : job_(job), run_news_(job.communicator, kRunPort), workers_(static_cast<std::size_t>(job.workers())) {
  job_.communicator.set_peer_policy(PeerPolicy::tells);
  begin_run();
  server_.emplace(make_server());
  reports_.emplace(job_.communicator, kReportPort);
  try {
    set_weights();
  } catch (...) {  // such as a checkpoint of another network; workers would wait
    const Error why = error_of(std::current_exception(), "the server failed");
    server_->give_up(why);
    for (int rank = 1; is_leader() && rank < job_.server.servers; ++rank) send_refusal(run_news_, rank, why.what());
    throw;
  }
}

void ServerHost::begin_run() {
  const std::string& path = job_.options.checkpoint.path;
  if (!is_leader()) {
    if (!path.empty()) run_ = receive_run(run_news_, job_.server.deadline_seconds);
    return;
  }
  try {
    if (!path.empty()) lock_.emplace(path);
  } catch (const Error& error) {
    for (int rank = 1; rank < job_.communicator.size(); ++rank) send_refusal(run_news_, rank, error.what());
    throw;
  }
  run_ = draw_run_number();
  for (int rank = 1; rank < job_.communicator.size(); ++rank) send_run(run_news_, rank, run_);
}

// Servers that share no directory see their own files alone.
void ServerHost::agree_on_loaded(std::uint64_t loaded_run) {
  if (is_leader()) {
    for (int rank = 1; rank < job_.communicator.size(); ++rank) send_run(run_news_, rank, loaded_run);
    return;
  }
  if (job_.options.checkpoint.path.empty()) return;
  const std::uint64_t of_leader = receive_run(run_news_, job_.server.deadline_seconds);
  if (of_leader == loaded_run) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: servers have checkpoints of different runs, {:08x} here and {:08x} on rank 0 (0: none); "
                          "remove them to start from the beginning",
                          job_.server_path(), loaded_run, of_leader));
}

server::Server ServerHost::make_server() {
  const OptimizerOptions& optimizer = job_.options.optimizer;
  server::ServerOptions options{
      .sgd = {.rate = job_.options.rate,
              .momentum = optimizer.momentum,
              .weight_decay = optimizer.weight_decay,
              .schedule = [&job = job_](std::uint64_t version) { return job.factor(version); }}};
  if (!job_.options.checkpoint.path.empty()) {
    options.checkpoint_every = job_.checkpoint_steps() / job_.every();
    options.checkpoint_path = job_.server_path();
    options.checkpoint_run = run_;
    options.on_checkpoint_failure = [this](const Error& error) { tell_of_failed_checkpoint(error); };
  }
  return server::Server::make(job_.communicator, job_.parameters, job_.server, options);
}

void ServerHost::set_weights() {
  for (const gradient::ParameterId id : server_->shard()) server_->set_weights(id, job_.learner.weights(id));
  constexpr std::uint64_t kNone = 0;
  if (!job_.options.checkpoint.resume) return agree_on_loaded(kNone);
  const std::string path = job_.server_path();
  if (!server_->has_checkpoint(path)) {
    agree_on_loaded(kNone);
    return tell(fmt::format("{}: there is no checkpoint: starts from the beginning", path));
  }
  const server::LoadedCheckpoint loaded = server_->load_checkpoint(path);
  agree_on_loaded(loaded.run);
  result_.was_resumed = true;
  if (!loaded.note.empty()) tell("goes on from an older checkpoint: " + loaded.note);
  const std::uint64_t steps = least_version() * job_.every();
  if (least_version() >= job_.versions()) {
    return tell(fmt::format("{}: this run is over, after {} steps: nothing is left to train", path, steps));
  }
  tell(fmt::format("goes on from {}: epoch {}, step {} of it", path, steps / job_.steps_of_epoch + 1,
                   steps % job_.steps_of_epoch));
}

// Parameters have steps of their own.
std::uint64_t ServerHost::least_version() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const gradient::ParameterId id : server_->shard()) least = std::min(least, server_->version(id));
  return least;
}

double ServerHost::now() const { return job_.communicator.engine()->transport().now(); }

// What the user's callbacks throw is what workers are told.
TrainResult ServerHost::run() try {
  open_door();
  if (!is_leader()) {
    server_->run();
    close_door();
    save();
    return std::move(result_);
  }
  is_serving_ = true;
  Task<> serving = serve(), collecting = collect();
  job_.communicator.engine()->spawn(serving);
  run_task(job_.communicator, collecting);
  close_door();
  if (failure_) std::rethrow_exception(failure_);
  save();
  result_.report = report();
  return std::move(result_);
} catch (...) {
  server_->give_up(error_of(std::current_exception(), "the server failed"));
  throw;
}

Task<> ServerHost::serve() {
  try {
    Task<> running = server_->await_run();
    co_await running;
  } catch (...) {
    failure_ = std::current_exception();
  }
  is_serving_ = false;
}

Task<> ServerHost::collect() {
  double heard_at = now();
  while (is_serving_ || (!failure_ && has_open_epoch() && now() - heard_at < kLastReportsSeconds)) {
    DatagramPort::ReceiveWithin waiting = reports_->receive_within(kLookSeconds);
    const std::optional<Datagram> datagram = co_await waiting;
    if (datagram) heard_at = now();
    if (datagram) take(datagram->from, *datagram);
    look_at_server();  // tells of who came, before what they tell
    take_from_newcomers();
    finish_epochs();
  }
  look_at_server();
  for (Known& worker : workers_) worker.has_left = true;
  finish_epochs();
}

// ---------------------------------------------------------------- newcomers

void ServerHost::open_door() {
  if (!job_.servers) return;
  if (is_leader()) door_.emplace(*job_.options.server.door);
  const auto on_arrival = [this](const Communicator& group, std::span<const int> places) { welcome(group, places); };
  reception_.emplace(*server_, *job_.servers, door_ ? &*door_ : nullptr,
                     server::ReceptionOptions{.on_arrival = on_arrival});
  if (is_leader()) tell(fmt::format("a lost worker's place can be taken at port {}", door_->port()));
}

void ServerHost::close_door() {
  reception_.reset();
  door_.reset();
}

// Called by the reception's thread.
void ServerHost::welcome(const Communicator& group, std::span<const int> places) {
  const std::lock_guard lock(mutex_);
  if (is_leader()) {
    DatagramPort news(group, kRunPort);
    for (std::size_t newcomer = 0; newcomer < places.size(); ++newcomer) {
      const int rank = job_.server.servers + static_cast<int>(newcomer);
      send_run(news, rank, run_);
      send_run(news, rank, 0);  // it has nothing to go on from
    }
  }
  groups_.emplace_back(group, places);
}

// While the server serves, it makes progress on their communicators; last reports may come after that.
void ServerHost::take_from_newcomers() {
  const std::lock_guard lock(mutex_);
  for (Group& group : groups_) {
    group.communicator.engine()->progress();
    while (const std::optional<Datagram> datagram = group.reports.try_receive()) {
      const int newcomer = datagram->from - job_.server.servers;
      if (newcomer >= 0) take(group.places[static_cast<std::size_t>(newcomer)], *datagram);
    }
  }
}

// ---------------------------------------------------------------- what workers tell

void ServerHost::take(int rank, const Datagram& datagram) {
  if (datagram.failure) return;  // of deaths the server knows
  const std::optional<WorkerMessage> message = decode_message(datagram.segments);
  if (!message) return;
  if (!message->report) return tell(message->words);
  if (rank < job_.server.servers) return;
  const WorkerReport& report = *message->report;
  Known& worker = workers_[static_cast<std::size_t>(rank - job_.server.servers)];
  worker.has_left |= report.is_last != 0;
  result_.was_stopped |= report.is_stopped != 0;
  if (report.epoch == 0) return;
  worker.last_epoch = static_cast<int>(report.epoch);
  worker.last = report.costs;
  WorkerReport whole = report;
  whole.costs.add(worker.of_former);
  epochs_[worker.last_epoch].push_back(whole);
}

void ServerHost::look_at_server() {
  const auto losses = server_->losses();
  for (; told_losses_ < losses.size(); ++told_losses_) {
    const server::Loss& loss = losses[told_losses_];
    result_.losses.push_back(fmt::format("rank {}: {}", loss.rank, loss.reason));
    tell(fmt::format("the worker of rank {} is lost: {}; the others go on", loss.rank, loss.reason));
  }
  const auto arrivals = server_->arrivals();
  for (; told_arrivals_ < arrivals.size(); ++told_arrivals_) {
    const int rank = arrivals[told_arrivals_];
    workers_[static_cast<std::size_t>(rank - job_.server.servers)].begin_anew();
    tell(fmt::format("a new process has the place of the worker of rank {}", rank));
  }
  const std::uint64_t version = least_version();
  if (version == shown_version_) return;
  shown_version_ = version;
  if (job_.options.on_step) job_.options.on_step(version * job_.every(), job_.steps());
}

// A worker that was late may have passed over an epoch, and says nothing about it.
bool ServerHost::is_over(int worker, int epoch) const {
  const Known& known = workers_[static_cast<std::size_t>(worker)];
  return is_gone(worker) || known.has_left || known.last_epoch >= epoch;
}

bool ServerHost::is_gone(int worker) const { return server_->is_lost(job_.server.servers + worker); }

bool ServerHost::has_open_epoch() const {
  for (int worker = 0; worker < job_.workers(); ++worker) {
    if (!is_gone(worker) && !workers_[static_cast<std::size_t>(worker)].has_left) return true;
  }
  return false;
}

void ServerHost::finish_epochs() {
  while (!epochs_.empty()) {
    const int epoch = epochs_.begin()->first;
    for (int worker = 0; worker < job_.workers(); ++worker) {
      if (!is_over(worker, epoch)) return;
    }
    finish_epoch(epoch);
    epochs_.erase(epochs_.begin());
  }
}

void ServerHost::finish_epoch(int epoch) {
  const std::vector<WorkerReport>& reports = epochs_.at(epoch);
  EpochMetrics metrics{.epoch = epoch, .workers = static_cast<int>(reports.size())};
  HeldOutSums held_out;
  double loss_sum = 0, loss_steps = 0;
  const double share = 1.0 / static_cast<double>(reports.size());
  for (const WorkerReport& report : reports) {
    metrics.steps = std::max(metrics.steps, static_cast<std::uint64_t>(report.steps));
    const WorkerCosts& costs = report.costs;
    metrics.seconds = std::max(metrics.seconds, costs.seconds);
    metrics.exposed_seconds += costs.exposed_seconds * share;
    metrics.start_seconds += costs.start_seconds * share;
    metrics.bytes_sent += costs.bytes_sent * share;
    metrics.bytes_received += costs.bytes_received * share;
    metrics.pushed += costs.pushed;
    metrics.pulled += costs.pulled;
    metrics.dropped += costs.dropped;
    loss_sum += report.loss_sum;
    loss_steps += report.loss_steps;
    held_out.add(report.held_out);
  }
  metrics.loss = loss_steps > 0 ? loss_sum / loss_steps : 0;
  metrics.held_out = held_out.mean();
  metrics.rate = job_.options.rate * job_.factor(std::max<std::uint64_t>(metrics.steps / job_.every(), 1) - 1);
  result_.epochs.push_back(metrics);
  if (job_.options.on_epoch) job_.options.on_epoch(metrics);
}

// ---------------------------------------------------------------- the end

// A disk that is full is no reason to lose what is in memory of others: the error is told at the end.
void ServerHost::save() {
  if (job_.options.checkpoint.path.empty()) return;
  try {
    server_->save_checkpoint(job_.server_path());
  } catch (const Error& error) {
    result_.checkpoint_error = error.what();
    tell(fmt::format("the checkpoint was not written: {}", error.what()));
  }
}

// In the middle of serving, on any server. The job goes on.
void ServerHost::tell_of_failed_checkpoint(const Error& error) {
  const std::string words = fmt::format(
      "server {}: the checkpoint was not written: {}; the next one is tried when it is "
      "time",
      job_.communicator.rank(), error.what());
  if (is_leader()) return tell(words);
  reports_->send(0, encode_message({.report = {}, .words = words}));
}

std::string ServerHost::report() const {
  const server::ServerStats stats = server_->stats();
  return fmt::format(
      "server of rank {}: {} parameters, {} steps of a parameter, {} pushes accepted and {} dropped, {} updates coded "
      "and "
      "{} sent, {} parameters sent whole, {} restarts of workers, {} bytes in and {} out\n",
      job_.communicator.rank(), server_->shard().size(), stats.steps, stats.accepted, stats.dropped, stats.encodings,
      stats.updates, stats.models, stats.restarts, stats.bytes_received, stats.bytes_sent);
}

void ServerHost::tell(const std::string& message) const {
  if (is_leader() && job_.options.on_message) job_.options.on_message(message);
}

}  // namespace tulle::nn
