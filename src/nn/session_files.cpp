// Checkpoints of a training: a file of each rank's, because residuals, momenta and local weights are the rank's own.
//
// All ranks write beside their old files first; the new ones take their places only when all are there, and what was
// there stays as the generation before. So whenever a job is killed, there is a step of which every rank has a file of
// one run, and also where a disk has damaged the newest of a rank. Then files of other numbers of ranks are removed,
// which the run has had before.
#include <fmt/format.h>

#include <algorithm>

#include "base/checkpoint.hpp"
#include "base/rank_files.hpp"
#include "nn/session.hpp"
#include "tulle/base/crc32c.hpp"
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

// Before the first step, so that of two jobs with one path the second one ends at once.
void Session::begin_run() {
  if (options_.checkpoint.path.empty()) return;
  double number[] = {0};
  fail_together(communicator_, failure_of([&] {
                  if (communicator_.rank() != 0) return;
                  lock_.emplace(options_.checkpoint.path);
                  number[0] = static_cast<double>(draw_run_number());
                }));
  run_ = static_cast<std::uint64_t>(combine(communicator_, number)[0]);
}

void Session::write_files() {
  const std::string path = checkpoint_path(communicator_.rank(), communicator_.size());
  std::optional<OutputFile> file;
  const std::exception_ptr unwritten = failure_of([&] {
    const Buffer pipeline = synchronizer_.save_state();
    std::vector<std::byte> bytes(pipeline.as<std::byte>().begin(), pipeline.as<std::byte>().end());
    std::vector<std::span<std::byte>> all = arrays();
    all.emplace_back(bytes);
    const SavedRun run{.run = run_, .state = state_, .division = division(), .pipeline_bytes = bytes.size()};
    writer_.prepare(path);
    file.emplace(path);
    write_checkpoint(*file, to_json(run, facts()), all);
    file->flush();
  });
  fail_together(communicator_, unwritten);
  fail_together(communicator_, failure_of([&] { writer_.commit(*file, {run_, state_.steps}); }));
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
  std::optional<std::uint64_t> most;
  for (const Generation& file : generations_at(checkpoint_path(0, ranks)).files) {
    if (file.what && !most) most = file.what->step;
  }
  int best = ranks;
  for (const int others : sets_on_disk(options_.checkpoint.path)) {
    if (others == ranks) continue;
    std::optional<CommonGeneration> newest;
    const std::exception_ptr unusable = failure_of([&] { newest = newest_common(files_of(others)); });
    if (most && (unusable || !newest || *most >= newest->what.step)) continue;
    if (unusable) std::rethrow_exception(unusable);
    if (!newest) continue;
    best = others;
    most = newest->what.step;
  }
  return best;
}

// Of all ranks of a job that this rank sees the files of.
std::vector<Generations> Session::files_of(int ranks) const {
  std::vector<Generations> files;
  for (int rank = 0; rank < ranks; ++rank) files.push_back(generations_at(checkpoint_path(rank, ranks)));
  return files;
}

// Of all ranks of this job, of which each sees its own.
std::vector<Generations> Session::files_of_all() {
  const std::string mine = encode(generations_at(checkpoint_path(communicator_.rank(), communicator_.size())));
  std::vector<Generations> files;
  for (const Buffer& bytes : gather_bytes(communicator_, Buffer::copy_of(std::as_bytes(std::span(mine))))) {
    files.push_back(decode_generations({reinterpret_cast<const char*>(bytes.bytes().data()), bytes.size()}));
  }
  return files;
}

// On another number of ranks each takes the weights of rank 0, and its share of what all ranks had not delivered.
void Session::restore(std::span<const Generations> files, const RunStep& what) {
  const auto ranks = static_cast<int>(files.size());
  const auto path_of = [&](int rank) { return files[static_cast<std::size_t>(rank)].find(what)->path; };
  if (ranks == communicator_.size()) {
    const Buffer states[] = {restore_from(path_of(communicator_.rank()))};
    synchronizer_.load_state(states);
    return writer_.goes_on_from(files[static_cast<std::size_t>(communicator_.rank())], what);
  }
  if (options_.recipe.every > 1) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: was saved on {} ranks, each with weights of its own between two "
                                                  "exchanges: it goes on there only",
                                                  options_.checkpoint.path, ranks));
  }
  std::vector<Buffer> states(static_cast<std::size_t>(ranks));
  for (int other = ranks - 1; other >= 0; --other) {  // the last one read is rank 0's
    states[static_cast<std::size_t>(other)] = restore_from(path_of(other));
  }
  synchronizer_.load_state(states);
}

// Of what all ranks have alike: with local steps that are the weights of the last exchange.
std::uint32_t Session::checksum_of_weights() {
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::span<const float> weights = before_.empty() ? learner_.weights(i) : std::span<float>(before_[i]);
    checksum = crc32c(std::as_bytes(weights), checksum);
  }
  return checksum;
}

// A run's number says that files belong together; this says that they do.
void Session::require_equal_weights() {
  const double checksum = checksum_of_weights();
  const double sides[] = {checksum, -checksum};
  const std::vector<double> most = combine(communicator_, sides, Op::max());
  if (most[0] == -most[1]) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: ranks' files hold different weights, though they are of one run and step: files of "
                          "ranks were copied from elsewhere; remove them to start from the beginning",
                          options_.checkpoint.path));
}

void Session::resume() {
  double chosen[] = {0};
  fail_together(communicator_, failure_of([&] {
                  if (communicator_.rank() == 0) chosen[0] = ranks_to_resume();
                }));
  const int ranks = static_cast<int>(combine(communicator_, chosen, Op::max())[0]);
  const std::vector<Generations> files = ranks == communicator_.size() ? files_of_all() : files_of(ranks);
  std::optional<CommonGeneration> newest;
  fail_together(communicator_, failure_of([&] {
                  newest = newest_common(files);
                  if (newest) restore(files, newest->what);
                }));
  was_resumed_ = newest.has_value();
  if (was_resumed_) require_equal_weights();
  if (was_resumed_ && !newest->note.empty()) tell("goes on from an older checkpoint: " + newest->note);
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
