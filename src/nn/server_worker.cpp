#include "nn/server_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/rank_files.hpp"
#include "comm/thrown.hpp"
#include "nn/run_news.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::nn {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

ServerWorker::ServerWorker(ServerJob& job)
    : job_(job),
      learner_(job.learner),
      sharding_(learner_.train_samples(), job.workers(), job.options.batch, job.options.seed),
      worker_(server::Worker::make(job.communicator, job.parameters, job.server, job.place)),
      reports_(job.communicator, kReportPort),
      run_news_(job.communicator, kRunPort),
      starts_early_(job.options.overlap && job.options.clip_norm == 0),
      has_pushed_(job.parameters.size()) {}

// Why a worker ends early is known here alone: rank 0 names it with the reason.
TrainResult ServerWorker::run() {
  try {
    train();
    leave();
  } catch (...) {
    worker_.give_up(error_of(std::current_exception(), "the training failed"));
    throw;
  }
  return {.epochs = {},
          .was_stopped = is_stopping_ && state_.steps < job_.steps(),
          .checkpoint_error = checkpoint_error_,
          .report = {}};
}

void ServerWorker::train() {
  join();
  const std::uint64_t epoch_steps = job_.steps_of_epoch;
  if (state_.steps < job_.steps()) prepare_next();
  while (state_.steps < job_.steps() && !is_stopping_) {
    const std::uint64_t epoch = state_.steps / epoch_steps, saved = state_.steps / job_.checkpoint_steps();
    const auto started = Clock::now();
    step();
    const bool ends_epoch = state_.steps / epoch_steps > epoch;
    const bool is_time_to_save = state_.steps / job_.checkpoint_steps() > saved;
    if (ends_epoch || is_time_to_save || !job_.options.overlap) pull_all();
    state_.seconds += seconds_since(started);
    if (ends_epoch) finish_epoch(static_cast<int>(state_.steps / epoch_steps));
    if (is_time_to_save) save();
    is_stopping_ = job_.options.stop_requested && job_.options.stop_requested();
  }
}

void ServerWorker::join() {
  std::vector<std::span<float>> weights;
  for (std::size_t i = 0; i < job_.parameters.size(); ++i) weights.push_back(learner_.weights(i));
  const bool has_files = !job_.options.checkpoint.path.empty();
  if (has_files) run_ = receive_run(run_news_, job_.server.deadline_seconds);
  worker_.join(weights);
  if (has_files) loaded_run_ = receive_run(run_news_, job_.server.deadline_seconds);
  if (is_newcomer()) return begin_at_the_others();
  state_.steps = least_version() * job_.every();
  if (!job_.options.checkpoint.resume) return;
  require_one_step();
  restore();
}

// Where steps do not wait for everybody, parameters are of different steps at any time, and also when a job is stopped.
// Else the servers' files are of different checkpoints.
void ServerWorker::require_one_step() const {
  if (job_.server.backup > 0 || job_.server.staleness > 0) return;
  std::uint64_t most = 0;
  for (gradient::ParameterId id = 0; id < job_.parameters.size(); ++id) most = std::max(most, worker_.version(id));
  if (least_version() == most) return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("parameter server: servers go on from checkpoints of different steps, {} and {}. Where servers "
                  "share no directory, give the file that ends in .before the place of the newer one on those "
                  "that are ahead; a run with backup workers or staleness goes on with the same",
                  least_version() * job_.every(), most * job_.every()));
}

std::uint64_t ServerWorker::least_version() const {
  std::uint64_t least = worker_.version(0);
  for (gradient::ParameterId id = 1; id < job_.parameters.size(); ++id) least = std::min(least, worker_.version(id));
  return least;
}

// Others are in the middle of a step, and parameters of different versions. What the former worker had not delivered is
// not here.
void ServerWorker::begin_at_the_others() {
  catch_up();
  if (job_.options.on_message) {
    job_.options.on_message(fmt::format("has the place of the worker of rank {}: goes on in epoch {}, step {} of it",
                                        job_.place.rank, state_.steps / job_.steps_of_epoch + 1,
                                        state_.steps % job_.steps_of_epoch));
  }
}

// ---------------------------------------------------------------- a step

// What hooks do is in the middle of foreign code, which must not see exceptions.
template <class Work>
void ServerWorker::guard(Work work) {
  if (failure_) return;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void ServerWorker::step() {
  has_caught_up_ = false;
  has_pushed_.assign(has_pushed_.size(), false);
  const Learner::Needed needed = [this](std::size_t parameter) { guard([&] { pull(parameter); }); };
  const Learner::Ready ready = [this](std::size_t parameter, std::span<const float> gradient) {
    guard([&] { push(parameter, gradient); });
  };
  const std::uint64_t seed = step_seed(job_.options.seed, place(), state_.steps);
  const Verdict verdict =
      learner_.run(seed, job_.options.overlap ? needed : Learner::Needed(), starts_early_ ? ready : Learner::Ready());
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  catch_up();
  if (!starts_early_) push_all();
  skip_rest();
  state_.loss_sum += verdict.loss;
  loss_steps_ += 1;
  state_.steps += 1;
  if (state_.steps < job_.steps()) prepare_next();
}

// While pushes travel.
void ServerWorker::prepare_next() {
  const std::uint64_t epoch = state_.steps / job_.steps_of_epoch, step = state_.steps % job_.steps_of_epoch;
  constexpr double kWeight = 1;  // servers weigh pushes where that is asked for
  learner_.prepare(sharding_.batch(epoch, step, place()), epoch, kWeight);
}

void ServerWorker::pull(std::size_t parameter) {
  const auto id = static_cast<gradient::ParameterId>(parameter);
  const bool is_there = worker_.test(id);
  const auto started = Clock::now();
  worker_.pull(id, learner_.weights(parameter));
  if (!is_there) state_.exposed_seconds += seconds_since(started);
}

void ServerWorker::pull_all() {
  for (std::size_t i = 0; i < job_.parameters.size(); ++i) pull(i);
}

// Before the first push of a step all parameters have been pulled: others may have gone on without this worker. Its
// push is computed on the newest model, and counts for the step that is open there.
void ServerWorker::catch_up() {
  if (std::exchange(has_caught_up_, true)) return;
  state_.steps = std::clamp(least_version() * job_.every(), state_.steps, std::max(state_.steps, job_.steps() - 1));
}

// Where the last step of a parameter is over, another push would begin one that nobody waits for.
void ServerWorker::push(std::size_t parameter, std::span<const float> gradient) {
  catch_up();
  const auto id = static_cast<gradient::ParameterId>(parameter);
  has_pushed_[parameter] = true;
  if (worker_.version(id) >= job_.versions()) return;
  const auto started = Clock::now();
  worker_.push(id, gradient, weight());
  state_.start_seconds += seconds_since(started);
}

// A loss that does not say what it is the mean of counts as one prediction.
double ServerWorker::weight() const {
  const double predictions = learner_.predictions();
  return job_.options.server.weighs_pushes && predictions > 0 ? predictions : 1;
}

void ServerWorker::push_all() {
  const double clip = clip_factor(learner_, job_.parameters.size(), job_.options.clip_norm, job_.workers());
  const auto factor = static_cast<float>(clip);
  for (std::size_t i = job_.parameters.size(); i-- > 0;) {
    const std::span<const float> gradient = learner_.gradient(i);
    if (gradient.empty()) continue;
    clipped_.assign(gradient.begin(), gradient.end());
    if (factor != 1) std::ranges::transform(clipped_, clipped_.begin(), [=](float value) { return factor * value; });
    push(i, clipped_);
  }
}

void ServerWorker::skip_rest() {
  for (std::size_t i = 0; i < job_.parameters.size(); ++i) {
    const auto id = static_cast<gradient::ParameterId>(i);
    if (!has_pushed_[i] && worker_.version(id) < job_.versions()) worker_.skip(id, weight());
  }
}

// ---------------------------------------------------------------- what rank 0 is told

void ServerWorker::finish_epoch(int epoch) {
  WorkerReport report = report_now();
  report.epoch = epoch;
  report.held_out = evaluate_share(learner_, place(), job_.workers(), job_.options.evaluation_batch);
  send({.report = report, .words = {}});
  state_.loss_sum = 0;
  loss_steps_ = 0;
}

WorkerReport ServerWorker::report_now() const {
  const server::WorkerStats& stats = worker_.stats();
  return {.steps = static_cast<double>(state_.steps),
          .loss_sum = state_.loss_sum,
          .loss_steps = loss_steps_,
          .costs = {.seconds = state_.seconds,
                    .exposed_seconds = state_.exposed_seconds,
                    .start_seconds = state_.start_seconds,
                    .bytes_sent = state_.bytes_sent + static_cast<double>(stats.bytes_pushed),
                    .bytes_received = state_.bytes_received + static_cast<double>(stats.bytes_pulled),
                    .pushed = state_.pushed + static_cast<double>(stats.pushes),
                    .pulled = state_.pulled + static_cast<double>(stats.updates + stats.models),
                    .dropped = state_.dropped + static_cast<double>(stats.dropped)}};
}

void ServerWorker::send(const WorkerMessage& message) { reports_.send(0, encode_message(message)); }

void ServerWorker::leave() {
  pull_all();
  save();
  WorkerReport last = report_now();
  last.is_last = 1;
  last.is_stopped = is_stopping_ && state_.steps < job_.steps() ? 1 : 0;
  send({.report = last, .words = {}});
  worker_.leave();
}

// ---------------------------------------------------------------- checkpoints

Facts ServerWorker::facts() const {
  return {{"parameters", network_fact(job_.parameters)},
          {"buffers", buffers_fact(learner_)},
          {"recipe", gradient::to_string(job_.server.push)}};
}

std::string ServerWorker::path() const { return path_of_rank(files(), place(), job_.workers()); }
std::string ServerWorker::files() const { return job_.options.checkpoint.path + ".worker"; }

// What is this worker's own: running means. The weights are the servers'.
std::vector<std::span<std::byte>> ServerWorker::arrays() { return bytes_of_buffers(learner_); }

void ServerWorker::save() {
  if (job_.options.checkpoint.path.empty()) return;
  const Buffer errors = worker_.save_state();
  std::vector<std::byte> bytes(errors.as<std::byte>().begin(), errors.as<std::byte>().end());
  std::vector<std::span<std::byte>> all = arrays();
  all.emplace_back(bytes);
  const WorkerCosts sums = report_now().costs;
  SavedRun run{.run = run_, .state = state_, .division = {}, .pipeline_bytes = bytes.size()};
  run.state.bytes_sent = sums.bytes_sent;
  run.state.bytes_received = sums.bytes_received;
  run.state.pushed = sums.pushed;
  run.state.pulled = sums.pulled;
  run.state.dropped = sums.dropped;
  run.state.step_of_epoch = static_cast<std::uint64_t>(loss_steps_);
  try {
    writer_.prepare(path());
    OutputFile file(path());
    write_checkpoint(file, to_json(run, facts()), all);
    writer_.commit(file, {run_, state_.steps});
    remove_other_sets(files(), job_.workers());
    checkpoint_error_.clear();
  } catch (const Error& error) {
    checkpoint_error_ = error.what();
    send({.report = {}, .words = fmt::format("worker {}: the checkpoint was not written: {}", place(), error.what())});
  }
}

// What a worker had not delivered belongs to one version of one run's model, and to no other. Where servers go on from
// the checkpoint before the last, so does the worker.
void ServerWorker::restore() {
  const RunStep model{.run = loaded_run_, .step = state_.steps};
  const auto go_on_without = [&](const std::string& why) {
    send(
        {.report = {}, .words = fmt::format("worker {}: {}: goes on without what it had not delivered", place(), why)});
  };
  Generations on_disk = generations_at(path());
  if (const Generation* file = on_disk.find(model)) {
    restore_from(file->path);
    return writer_.goes_on_from(std::move(on_disk), model);
  }
  if (model.step == 0) return;
  if (on_disk.files.empty()) return go_on_without(fmt::format("{} is not there", path()));
  const Generation& newest = on_disk.files.front();
  if (!newest.what) return go_on_without(newest.problem);
  go_on_without(fmt::format("{} is of {}, the model of {}", path(), to_string(*newest.what), to_string(model)));
}

void ServerWorker::restore_from(const std::string& file_path) {
  const CheckpointFile file = CheckpointFile::read(*open_file(file_path));
  const SavedRun saved = run_from_json(file.description(), facts(), file_path);
  std::vector<std::byte> errors(saved.pipeline_bytes);
  std::vector<std::span<std::byte>> all = arrays();
  all.emplace_back(errors);
  file.restore(all);
  worker_.load_state(Buffer::copy_of(errors));
  state_ = saved.state;
  loss_steps_ = static_cast<double>(saved.state.step_of_epoch);
}

}  // namespace tulle::nn
