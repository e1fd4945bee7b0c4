// Checkpoints of a training: a file of each rank's, because residuals, momenta and local weights are the rank's own.
//
// All ranks write beside their old files first (.next); the new ones take their places only when all are there, so that
// whenever a job is killed there is a step of which every rank has a file, in its place or waiting for it. Then files
// of other numbers of ranks are removed, which the run has had before.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/checkpoint.hpp"
#include "base/rank_files.hpp"
#include "nn/session.hpp"
#include "tulle/base/error.hpp"

namespace tulle::nn {

Facts Session::facts() const {
  const OptimizerOptions& optimizer = options_.optimizer;
  return {{"parameters", network_fact(parameters_)},
          {"buffers", buffers_fact(learner_)},
          {"recipe", gradient::to_string(options_.recipe)},
          {"optimizer", fmt::format("{} momentum {} nesterov {} weight decay {}", to_string(optimizer.kind),
                                    optimizer.momentum, optimizer.nesterov, optimizer.weight_decay)}};
}

std::string Session::division() const {
  return fmt::format("{} samples, {} steps of {} ranks with {}, seed {}", learner_.train_samples(), steps_of_epoch_,
                     communicator_.size(), options_.batch, options_.seed);
}

std::string Session::checkpoint_path(int rank, int ranks) const {
  return path_of_rank(options_.checkpoint.path, rank, ranks);
}

std::vector<std::span<std::byte>> Session::arrays() {
  std::vector<std::span<std::byte>> arrays;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    arrays.push_back(std::as_writable_bytes(learner_.weights(i)));
  }
  std::ranges::copy(bytes_of_buffers(learner_), std::back_inserter(arrays));
  for (std::vector<float>& before : before_) arrays.push_back(std::as_writable_bytes(std::span(before)));
  for (const std::span<std::byte> array : optimizer_.state()) arrays.push_back(array);
  return arrays;
}

void Session::write_files() {
  const std::string path = checkpoint_path(communicator_.rank(), communicator_.size()), next = path + ".next";
  const std::exception_ptr unwritten = failure_of([&] {
    const Buffer pipeline = synchronizer_.save_state();
    std::vector<std::byte> bytes(pipeline.as<std::byte>().begin(), pipeline.as<std::byte>().end());
    std::vector<std::span<std::byte>> all = arrays();
    all.emplace_back(bytes);
    const SavedRun run{.state = state_, .division = division(), .pipeline_bytes = bytes.size()};
    save_checkpoint(next, to_json(run, facts()), all);
  });
  fail_together(communicator_, unwritten);
  std::error_code code;
  std::filesystem::rename(next, path, code);
  const std::exception_ptr unnamed = failure_of([&] {
    if (code) throw Error(ErrorKind::system, fmt::format("{}: {}", path, code.message()));
  });
  fail_together(communicator_, unnamed);
  remove_other_sets(options_.checkpoint.path, communicator_.size());
}

// A disk that is full is no reason to lose the run: it goes on, and tries again when it is time.
void Session::save() {
  finish_all();
  try {
    write_files();
    checkpoint_error_.clear();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::system && error.kind() != ErrorKind::bad_input) throw;
    checkpoint_error_ = error.what();
    tell(fmt::format("the checkpoint was not written: {}", error.what()));
  }
  saved_at_ = Clock::now();
}

// Everything but the pipeline's state, which it gives.
Buffer Session::restore_from(const std::string& path) {
  const auto file = CheckpointFile::open(path);
  if (!file) throw Error(ErrorKind::bad_input, fmt::format("{}: is not there, as others of its run are", path));
  SavedRun saved = run_from_json(file->description(), facts(), path);
  if (saved.pipeline_bytes > file->array_bytes()) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: is shorter than it says", path));
  }
  std::vector<std::byte> pipeline(saved.pipeline_bytes);
  std::vector<std::span<std::byte>> all = arrays();
  all.emplace_back(pipeline);
  file->restore(all);
  state_ = std::move(saved.state);
  if (saved.division != division()) state_.step_of_epoch = 0;
  if (saved.division != division()) state_.loss_sum = 0;
  return Buffer::copy_of(pipeline);
}

// Asked on rank 0: the set that has come farthest. Of that of this number of ranks a rank may see its own file alone.
int Session::ranks_to_resume() const {
  const int ranks = communicator_.size();
  std::optional<std::uint64_t> most = newest_common_step(saved_steps(0, 1, ranks));
  int best = ranks;
  for (const int others : sets_on_disk(options_.checkpoint.path)) {
    if (others == ranks) continue;
    std::optional<std::uint64_t> steps;
    const std::exception_ptr unusable = failure_of([&] { steps = newest_common_step(saved_steps(0, others, others)); });
    if (most && (unusable || !steps || *most >= *steps)) continue;
    if (unusable) std::rethrow_exception(unusable);
    best = others;  // also where files are missing, which is told then
    most = steps;
  }
  return best;
}

std::vector<SavedSteps> Session::saved_steps(int first, int count, int ranks) const {
  std::vector<SavedSteps> steps;
  for (int rank = first; rank < first + count; ++rank) {
    steps.push_back(steps_on_disk(checkpoint_path(rank, ranks), facts()));
  }
  return steps;
}

// What every rank has, of which each sees its own.
std::vector<SavedSteps> Session::all_saved_steps() {
  SavedSteps mine;
  const int rank = communicator_.rank();
  fail_together(communicator_, failure_of([&] { mine = saved_steps(rank, 1, communicator_.size()).front(); }));
  const auto number = [](std::optional<std::uint64_t> step) { return step ? static_cast<double>(*step) : -1.0; };
  std::vector<double> numbers(2 * static_cast<std::size_t>(communicator_.size()), -1.0);
  numbers[2 * static_cast<std::size_t>(rank)] = number(mine.placed);
  numbers[2 * static_cast<std::size_t>(rank) + 1] = number(mine.next);
  numbers = combine(communicator_, numbers, Op::max());
  const auto step = [](double value) {
    return value < 0 ? std::optional<std::uint64_t>() : static_cast<std::uint64_t>(value);
  };
  std::vector<SavedSteps> all;
  for (std::size_t i = 0; i < numbers.size(); i += 2) all.push_back({step(numbers[i]), step(numbers[i + 1])});
  return all;
}

// Nothing where there is no checkpoint, or the first one was not finished.
std::optional<std::uint64_t> Session::step_to_resume(std::span<const SavedSteps> saved) const {
  const std::optional<std::uint64_t> step = newest_common_step(saved);
  const auto is_placed = [](const SavedSteps& rank) { return rank.placed.has_value(); };
  if (step || std::ranges::none_of(saved, is_placed)) return step;
  const auto ranks = static_cast<int>(saved.size());
  std::string steps;
  for (int rank = 0; rank < ranks; ++rank) {
    const SavedSteps& its = saved[static_cast<std::size_t>(rank)];
    if (!its.placed) {
      throw Error(ErrorKind::bad_input, fmt::format("{} is not there: some ranks have no checkpoint. Put it back, or "
                                                    "remove the others to start from the beginning",
                                                    checkpoint_path(rank, ranks)));
    }
    steps += fmt::format("{}{}", steps.empty() ? "" : ", ", *its.placed);
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: ranks have checkpoints of different steps: {}. They are of several runs; remove them to "
                          "start from the beginning",
                          options_.checkpoint.path, steps));
}

// On another number of ranks each takes the weights of rank 0, and its share of what all ranks had not delivered.
void Session::restore(std::span<const SavedSteps> saved, std::uint64_t step) {
  const auto ranks = static_cast<int>(saved.size());
  const auto file_of_step = [&](int rank) {
    const bool is_placed = saved[static_cast<std::size_t>(rank)].placed == step;
    return checkpoint_path(rank, ranks) + (is_placed ? "" : ".next");
  };
  if (ranks == communicator_.size()) {
    const Buffer states[] = {restore_from(file_of_step(communicator_.rank()))};
    return synchronizer_.load_state(states);
  }
  if (options_.recipe.every > 1) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: was saved on {} ranks, each with weights of its own between two "
                                                  "exchanges: it goes on there only",
                                                  options_.checkpoint.path, ranks));
  }
  std::vector<Buffer> states(static_cast<std::size_t>(ranks));
  for (int other = ranks - 1; other >= 0; --other) {  // the last one read is rank 0's
    states[static_cast<std::size_t>(other)] = restore_from(file_of_step(other));
  }
  synchronizer_.load_state(states);
}

void Session::resume() {
  double chosen[] = {0};
  fail_together(communicator_, failure_of([&] {
                  if (communicator_.rank() == 0) chosen[0] = ranks_to_resume();
                }));
  const int ranks = static_cast<int>(combine(communicator_, chosen, Op::max())[0]);
  std::vector<SavedSteps> saved;
  if (ranks == communicator_.size()) saved = all_saved_steps();
  std::optional<std::uint64_t> step;
  fail_together(communicator_, failure_of([&] {
                  if (saved.empty()) saved = saved_steps(0, ranks, ranks);
                  step = step_to_resume(saved);
                  if (step) restore(saved, *step);
                }));
  was_resumed_ = step.has_value();
  tell_where_it_goes_on();
}

void Session::tell_where_it_goes_on() const {
  const std::string& path = options_.checkpoint.path;
  if (!was_resumed_) return tell(fmt::format("{}: there is no checkpoint: starts from the beginning", path));
  if (!is_over()) {
    return tell(fmt::format("goes on from {}: epoch {}, step {} of it", path, state_.epoch + 1, state_.step_of_epoch));
  }
  const EpochMetrics& last = state_.epochs.back();
  const std::string why = has_converged() ? "stopped because the held-out loss no longer fell" : "is over";
  tell(
      fmt::format("{}: this run {}, after epoch {} with a held-out loss of {:.4f} and an accuracy of {:.4f}: nothing "
                  "is left to train",
                  path, why, state_.epoch, last.held_out.loss, last.held_out.accuracy));
}

}  // namespace tulle::nn
