#include "linear/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_counts.hpp"
#include "linear/evaluation.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Position, epoch, step_of_epoch, steps, rate, loss_sum, rows, best_loss,
                                   epochs_without_gain, previous_loss)

namespace {

nlohmann::json to_json_text(const EpochMetrics& metrics) {
  nlohmann::json json = {{"epoch", metrics.epoch},
                         {"steps", metrics.steps},
                         {"objective", metrics.objective},
                         {"penalty", metrics.penalty},
                         {"seconds", metrics.seconds},
                         {"rate", metrics.rate},
                         {"communication_seconds", metrics.communication_seconds},
                         {"bytes", metrics.bytes},
                         {"estimated", metrics.has_estimated_bytes}};
  if (metrics.held_out) {
    const Evaluation& held_out = *metrics.held_out;
    json["held_out"] = {{"rows", held_out.rows}, {"loss", held_out.loss}, {"accuracy", held_out.accuracy}};
    if (held_out.auc) json["held_out"]["auc"] = *held_out.auc;
  }
  return json;
}

EpochMetrics metrics_from(const nlohmann::json& json) {
  EpochMetrics metrics{.epoch = json.at("epoch"),
                       .steps = json.at("steps"),
                       .objective = json.at("objective"),
                       .penalty = json.at("penalty"),
                       .seconds = json.at("seconds"),
                       .communication_seconds = json.at("communication_seconds"),
                       .bytes = json.at("bytes"),
                       .has_estimated_bytes = json.at("estimated"),
                       .rate = json.at("rate")};
  if (json.contains("held_out")) {
    const nlohmann::json& held_out = json["held_out"];
    metrics.held_out = {
        .rows = held_out.at("rows"), .loss = held_out.at("loss"), .accuracy = held_out.at("accuracy"), .auc = {}};
    if (held_out.contains("auc")) metrics.held_out->auc = held_out["auc"].get<double>();
  }
  return metrics;
}

}  // namespace

Session::Session(Communicator communicator, const TrainOptions& train_options)
    : group(std::move(communicator)), options(train_options) {
  position.rate = options.rate;
  position.best_loss = position.previous_loss = std::numeric_limits<double>::max();
}

Task<TrainResult> Session::run(Method& method, Dataset* held_out, double least_useful) {
  co_await begin_checkpoints();
  if (options.checkpoint.resume) {
    co_await resume(method);
    tell(was_resumed_ ? fmt::format("goes on from {}: epoch {}, step {} of it", options.checkpoint.path,
                                    position.epoch + 1, position.step_of_epoch)
                      : fmt::format("{} is not there: starts from the beginning", options.checkpoint.path));
  }
  saved_at_ = group.now();
  bool is_done = position.epoch >= options.epochs;
  while (!is_done) {
    const double started = group.now();
    co_await method.run_epoch();
    train_seconds_ += group.now() - started;
    if (is_stopping) break;
    co_await finish_epoch(method, held_out);
    is_done = position.epoch >= options.epochs || has_converged(epochs_.back());
  }
  require_finite(*method.snapshot());
  co_await group.fail_together(failure);
  if (!options.checkpoint.path.empty()) save(method);
  const std::optional<double> objective = co_await final_objective(method, least_useful);
  TrainResult result{.epochs = epochs_,
                     .objective = objective,
                     .was_stopped = is_stopping,
                     .was_resumed = was_resumed_,
                     .checkpoint_error = checkpoint_error_};
  if (group.rank() == 0 || !options.replicas) result.model = method.snapshot()->model;
  co_return result;
}

Task<std::optional<double>> Session::final_objective(Method& method, double least_useful) {
  if (is_stopping) co_return std::nullopt;
  const double loss = co_await method.loss();
  const double objective = loss + method.snapshot()->penalty;
  if (objective > least_useful * (1 + 1e-6)) {
    tell(fmt::format("the objective is {:.6g}, and without features it is {:.6g}: {}", objective, least_useful,
                     options.solver == Solver::sgd ? "try another rate, or more epochs" : "try more epochs"));
  }
  co_return objective;
}

Task<> Session::finish_epoch(Method& method, Dataset* held_out) {
  const CommunicationStats stats = group.stats();  // before what follows adds to it
  const std::vector<double> mine{train_seconds_, stats.seconds, stats.bytes};
  const std::vector<double> slowest = co_await group.agree(mine, Op::max());
  const std::vector<double> sums = co_await group.agree(mine);
  const double loss = co_await method.epoch_loss();
  const std::shared_ptr<const Snapshot> snapshot = method.snapshot();
  if (!std::isfinite(loss + snapshot->penalty)) fail_as_diverged();
  co_await group.fail_together(failure);
  EpochMetrics metrics{.epoch = position.epoch + 1,
                       .steps = position.steps,
                       .objective = loss + snapshot->penalty,
                       .penalty = snapshot->penalty,
                       .seconds = before_resume_.seconds + slowest[0],
                       .communication_seconds = before_resume_.communication_seconds + sums[1] / group.size(),
                       .bytes = before_resume_.bytes + sums[2] / group.size(),
                       .has_estimated_bytes = stats.has_estimated_bytes,
                       .rate = position.rate};
  if (held_out != nullptr) metrics.held_out = co_await evaluate_task(group, *held_out, snapshot->model);
  group.set_stats(stats);
  epochs_.push_back(metrics);
  position.epoch += 1;
  position.step_of_epoch = 0;
  position.loss_sum = position.rows = 0;
  if (group.rank() == 0 && options.on_epoch) options.on_epoch(metrics);
}

bool Session::has_converged(const EpochMetrics& metrics) {
  if (options.tolerance <= 0) return false;
  const double loss = metrics.held_out ? metrics.held_out->loss : metrics.objective;
  const bool has_gained = loss < position.best_loss * (1 - options.tolerance);
  position.epochs_without_gain = has_gained ? 0 : position.epochs_without_gain + 1;
  position.best_loss = std::min(position.best_loss, loss);
  return position.epochs_without_gain >= options.patience;
}

void Session::fail_as_diverged() {
  if (failure) return;
  const std::string remedy = options.solver == Solver::sgd ? fmt::format("a rate below {} may help", options.rate)
                                                           : std::string("a damping of 0 does not diverge");
  failure = std::make_exception_ptr(
      Error(ErrorKind::bad_input,
            fmt::format("the training diverged in epoch {}: the loss or a weight is infinite or not a number; {}",
                        position.epoch + 1, remedy)));
}

void Session::require_finite(const Snapshot& snapshot) {
  const auto is_finite = [](float value) { return std::isfinite(value); };
  const LinearModel& model = snapshot.model;
  if (!std::ranges::all_of(model.weights, is_finite) || !std::ranges::all_of(model.intercepts, is_finite)) {
    fail_as_diverged();
  }
}

float Session::votes_to_save() const {
  const bool is_due =
      group.rank() == 0 && !options.checkpoint.path.empty() && group.now() - saved_at_ >= options.checkpoint.seconds;
  return is_due ? 1.0f : 0.0f;
}

// A disk that is full is no reason to lose the run: it goes on, and tries again when it is time.
void Session::save(Method& method) {
  saved_at_ = group.now();
  if (group.rank() != 0) return;
  require_finite(*method.snapshot());
  if (failure) return;  // the others are told by the vote
  try {
    writer_.prepare(options.checkpoint.path);
    OutputFile file(options.checkpoint.path);
    write_checkpoint(file, describe(), method.state());
    writer_.commit(file, {run_, position.steps});
    checkpoint_error_.clear();
  } catch (const Error& error) {
    checkpoint_error_ = error.what();
    tell(fmt::format("the checkpoint was not written: {}", error.what()));
  }
}

void Session::tell(const std::string& message) const {
  if (group.rank() == 0 && options.on_message) options.on_message(message);
}

void Session::tell_step(std::uint64_t steps_of_epoch) {
  if (group.rank() != 0 || !options.on_step) return;
  options.on_step(static_cast<std::uint64_t>(position.epoch) * steps_of_epoch + position.step_of_epoch,
                  static_cast<std::uint64_t>(options.epochs) * steps_of_epoch);
}

LinearModel Session::empty_model() const {
  LinearModel model{.loss = options.loss, .features = facts.features, .classes = facts.labels};
  const std::size_t vectors = vectors_of(facts.labels.size());
  model.weights.resize(vectors * facts.features);
  model.intercepts.resize(vectors);
  return model;
}

std::string Session::describe() const {
  nlohmann::json json = {{"solver", options.solver == Solver::sgd ? "sgd" : "scd"},
                         {"loss", to_string(options.loss)},
                         {"schedule", to_string(options.schedule)},
                         {"l1", options.penalty.l1},
                         {"l2", options.penalty.l2},
                         {"ranks", group.size()},
                         {"run", run_},
                         {"batch_rows", options.batch_rows},
                         {"coordinates", options.coordinates},
                         {"rows", facts.rows},
                         {"features", facts.features},
                         {"classes", facts.labels.size()},
                         {"intercept", options.intercept},
                         {"seed", options.seed},
                         {"position", position},
                         {"seconds", before_resume_.seconds + train_seconds_},
                         {"communication_seconds", before_resume_.communication_seconds + group.stats().seconds},
                         {"bytes", before_resume_.bytes + group.stats().bytes},
                         {"epochs", nlohmann::json::array()}};
  for (const EpochMetrics& metrics : epochs_) json["epochs"].push_back(to_json_text(metrics));
  return json.dump();
}

void Session::restore(const std::string& description) {
  try {
    restore(nlohmann::json::parse(description));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: is a checkpoint of another tulle: {}", options.checkpoint.path, error.what()));
  }
}

void Session::restore(const nlohmann::json& json) {
  if (!json.contains("coordinates")) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: is a checkpoint of an older tulle", options.checkpoint.path));
  }
  const auto require = [&](const char* field, const nlohmann::json& wanted) {
    if (json.at(field) == wanted) return;
    const nlohmann::json& was = json.at(field);
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: {} was {}, and is {} now", options.checkpoint.path, field, shown(was), wanted.dump()));
  };
  require("solver", options.solver == Solver::sgd ? "sgd" : "scd");
  require("loss", to_string(options.loss));
  require("schedule", to_string(options.schedule));
  require("l1", options.penalty.l1);
  require("l2", options.penalty.l2);
  require("features", facts.features);
  require("classes", facts.labels.size());
  require("intercept", options.intercept);
  const std::string& path = options.checkpoint.path;
  require_counts(json.at("position"), {"epoch", "step_of_epoch", "steps", "epochs_without_gain"}, path);
  position = json.at("position").get<Position>();
  // Other ranks, rows or batches divide the work differently: the epoch that was under way begins again.
  const bool same_batches = json.at("ranks") == group.size() && json.at("batch_rows") == options.batch_rows &&
                            json.at("coordinates") == options.coordinates && json.at("rows") == facts.rows &&
                            json.at("seed") == options.seed;
  if (!same_batches) position.step_of_epoch = 0;
  if (!same_batches) position.loss_sum = position.rows = 0;
  for (const auto& metrics : json.at("epochs")) {
    require_counts(metrics, {"epoch", "steps"}, path);
    epochs_.push_back(metrics_from(metrics));
  }
  before_resume_ = {.seconds = json.at("seconds"),
                    .communication_seconds = json.at("communication_seconds"),
                    .bytes = json.at("bytes")};
}

Task<> Session::begin_checkpoints() {
  if (options.checkpoint.path.empty()) co_return;
  std::vector<double> number(1);
  const std::exception_ptr is_held = failure_of([&] {
    if (group.rank() != 0) return;
    lock_.emplace(options.checkpoint.path);
    number[0] = static_cast<double>(draw_run_number());
  });
  co_await group.fail_together(is_held);
  const std::vector<double> agreed = co_await group.agree(number);
  run_ = static_cast<std::uint64_t>(agreed[0]);
}

namespace {

// Another solver or other data are told when it is restored, and no reason to take an older one.
RunStep run_step_of(const CheckpointFile& file, const std::string& path) {
  try {
    const auto json = nlohmann::json::parse(file.description());
    require_counts(json.at("position"), {"steps"}, path);
    return {.run = json.value("run", std::uint64_t{0}), .step = json.at("position").at("steps")};
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: is a checkpoint of another tulle: {}", path, error.what()));
  }
}

// In the order of the number that ranks tell each other.
std::array<std::string, 3> generations_of(const std::string& path) {
  return {path, path_before(path), path_of_part(path)};
}

}  // namespace

// Rank 0's choice as numbers: whether there is one, its place among generations_of(), its run and its step.
std::vector<double> Session::choose_generation() {
  const std::string& path = options.checkpoint.path;
  Generations on_disk = read_generations(
      path, [](const std::string& file) { return run_step_of(CheckpointFile::read(*open_file(file)), file); });
  const std::optional<CommonGeneration> chosen = newest_common(std::span(&on_disk, 1));
  if (!chosen) return {0, 0, 0, 0};
  left_out_ = chosen->note;
  const std::array<std::string, 3> paths = generations_of(path);
  const auto place = std::ranges::find(paths, on_disk.find(chosen->what)->path) - paths.begin();
  writer_.goes_on_from(std::move(on_disk), chosen->what);
  return {1, static_cast<double>(place), static_cast<double>(chosen->what.run), static_cast<double>(chosen->what.step)};
}

void Session::restore_from(const std::string& file_path, const RunStep& chosen, Method& method) {
  const auto file = CheckpointFile::open(file_path);
  if (!file || run_step_of(*file, file_path) != chosen) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: ranks see different checkpoints; it has to lie where all can read it",
                            options.checkpoint.path));
  }
  restore(file->description());
  file->restore(method.state());
  method.restored();
}

// Rank 0 chooses, and all read what it has chosen.
Task<> Session::resume(Method& method) {
  std::vector<double> choice(4);
  const std::exception_ptr nothing_usable = failure_of([&] {
    if (group.rank() == 0) choice = choose_generation();
  });
  co_await group.fail_together(nothing_usable);
  choice = co_await group.agree(choice);
  was_resumed_ = choice[0] > 0;
  const std::exception_ptr unreadable = failure_of([&] {
    if (!was_resumed_) return;
    const std::string path = generations_of(options.checkpoint.path)[static_cast<std::size_t>(choice[1])];
    restore_from(path, {static_cast<std::uint64_t>(choice[2]), static_cast<std::uint64_t>(choice[3])}, method);
  });
  co_await group.fail_together(unreadable);
  if (!left_out_.empty()) tell(fmt::format("goes on from an older checkpoint: {}", left_out_));
}

}  // namespace tulle::linear
