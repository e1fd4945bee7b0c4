// Checkpoints of a training: a file of each rank's, because residuals, momenta and local weights are the rank's own.
//
// All ranks write beside their old files first; the new ones take their places only when all are there, so that what
// is on disk is of one step.
#include <fmt/format.h>

#include <filesystem>

#include "base/checkpoint.hpp"
#include "nn/session.hpp"
#include "tulle/base/error.hpp"

namespace tulle::nn {

Facts Session::facts() const {
  const OptimizerOptions& optimizer = options_.optimizer;
  return {{"parameters", network_fact(parameters_)},
          {"recipe", gradient::to_string(options_.recipe)},
          {"optimizer", fmt::format("{} momentum {} nesterov {} weight decay {}", to_string(optimizer.kind),
                                    optimizer.momentum, optimizer.nesterov, optimizer.weight_decay)}};
}

std::string Session::division() const {
  return fmt::format("{} samples, {} steps of {} ranks with {}, seed {}", learner_.train_samples(), steps_of_epoch_,
                     communicator_.size(), options_.batch, options_.seed);
}

std::string Session::checkpoint_path(int rank, int ranks) const {
  return fmt::format("{}.{}-of-{}", options_.checkpoint.path, rank, ranks);
}

std::vector<std::span<std::byte>> Session::arrays() {
  std::vector<std::span<std::byte>> arrays;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    arrays.push_back(std::as_writable_bytes(learner_.weights(i)));
  }
  for (const std::span<float> buffer : learner_.buffers()) arrays.push_back(std::as_writable_bytes(buffer));
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

// On another number of ranks each takes the weights of rank 0, and its share of what all ranks had not delivered.
bool Session::restore() {
  const int rank = communicator_.rank(), ranks = communicator_.size();
  if (std::filesystem::exists(checkpoint_path(rank, ranks))) {
    const Buffer states[] = {restore_from(checkpoint_path(rank, ranks))};
    synchronizer_.load_state(states);
    return true;
  }
  const int others = ranks_on_disk(options_.checkpoint.path);
  if (others == 0 || others == ranks) return false;
  if (options_.recipe.every > 1) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: was saved on {} ranks, each with weights of its own between two "
                                                  "exchanges: it goes on there only",
                                                  options_.checkpoint.path, others));
  }
  std::vector<Buffer> states(static_cast<std::size_t>(others));
  for (int other = others - 1; other >= 0; --other) {  // the last one read is rank 0's
    states[static_cast<std::size_t>(other)] = restore_from(checkpoint_path(other, others));
  }
  synchronizer_.load_state(states);
  return true;
}

void Session::resume() {
  bool is_there = false;
  fail_together(communicator_, failure_of([&] { is_there = restore(); }));
  const auto steps = static_cast<double>(state_.steps);
  const double mine[] = {is_there ? 1.0 : 0.0, is_there ? -1.0 : 0.0, steps, -steps};
  const std::vector<double> most = combine(communicator_, mine, Op::max());
  const std::string& path = options_.checkpoint.path;
  if (most[0] != -most[1]) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: some ranks have no checkpoint", path));
  }
  if (most[2] != -most[3]) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: ranks have checkpoints of different steps", path));
  }
  was_resumed_ = is_there;
  tell(is_there ? fmt::format("goes on from {}: epoch {}, step {} of it", path, state_.epoch + 1, state_.step_of_epoch)
                : fmt::format("{}: there is no checkpoint: starts from the beginning", path));
}

}  // namespace tulle::nn
