#include "nn/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "nn/server_session.hpp"
#include "nn/session.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::nn {
namespace {

// So that dice of steps are not those of the samples' order.
constexpr std::uint64_t kStepDice = 0x5354455044494345;

}  // namespace

std::unique_ptr<Training> make_training(const Communicator& communicator, Learner& learner,
                                        const TrainerOptions& options) {
  if (options.server.servers != 0) return std::make_unique<ServerSession>(communicator, learner, options);
  return std::make_unique<Session>(communicator, learner, options);
}

void validate(const TrainerOptions& options) {
  const auto require = [](bool holds, const char* reason) {
    if (!holds) throw Error(ErrorKind::bad_input, reason);
  };
  gradient::validate(options.recipe);
  require(options.epochs >= 1, "epochs: fewer than 1");
  require(options.batch >= 1, "batch: fewer than 1");
  require(options.evaluation_batch >= 1, "evaluation_batch: fewer than 1");
  require(std::isfinite(options.rate) && options.rate >= 0, "rate: not a number from 0 on");
  require(options.optimizer.momentum >= 0 && options.optimizer.momentum < 1, "momentum: not from 0 to below 1");
  require(options.optimizer.weight_decay >= 0, "weight_decay: below 0");
  require(!options.optimizer.nesterov || options.optimizer.momentum > 0 || options.recipe.momentum > 0,
          "nesterov: needs momentum");
  require(options.optimizer.kind == OptimizerKind::sgd || options.recipe.momentum == 0,
          "optimizer: the recipe has SGD's momentum inside, on which adamw would work a second time; take sgd, or a "
          "recipe with momentum:0 and masking:off");
  require(options.clip_norm >= 0, "clip_norm: below 0");
  require(options.schedule.warm_up_epochs >= 0, "warm_up_epochs: below 0");
  require(!options.checkpoint.resume || !options.checkpoint.path.empty(), "resume: needs the path of a checkpoint");
}

std::uint64_t steps_of_epoch(const Sharding& sharding, const TrainerOptions& options) {
  const std::uint64_t limit = options.steps_of_epoch;
  return limit > 0 ? std::min(sharding.steps(), limit) : sharding.steps();
}

double rate_factor(const TrainerOptions& options, std::uint64_t step, std::uint64_t steps_of_epoch) {
  return schedule_factor(options.schedule, step, steps_of_epoch * static_cast<std::uint64_t>(options.epochs),
                         steps_of_epoch);
}

std::uint64_t step_seed(std::uint64_t seed, int rank, std::uint64_t step) {
  return Philox(seed ^ kStepDice, static_cast<std::uint64_t>(rank)).at(step);
}

double clip_factor(Learner& learner, std::size_t parameters, double clip_norm, int ranks) {
  if (clip_norm == 0) return 1;
  double squares = 0;
  for (std::size_t i = 0; i < parameters; ++i) {
    for (const float value : learner.gradient(i)) squares += static_cast<double>(value) * value;
  }
  const double bound = clip_norm / std::sqrt(ranks);
  return squares > bound * bound ? bound / std::sqrt(squares) : 1;
}

void HeldOutSums::add(const HeldOutSums& others) {
  loss += others.loss;
  correct += others.correct;
  count += others.count;
  top5_correct += others.top5_correct;
}

Evaluation HeldOutSums::mean() const {
  if (count == 0) return {};
  return {.loss = loss / count, .accuracy = correct / count, .top5_accuracy = top5_correct / count, .samples = count};
}

HeldOutSums combine_held_out(Communicator& communicator, const HeldOutSums& mine) {
  const double sums[] = {mine.loss, mine.correct, mine.count, mine.top5_correct};
  const std::vector<double> all = combine(communicator, sums);
  return {.loss = all[0], .correct = all[1], .count = all[2], .top5_correct = all[3]};
}

HeldOutSums evaluate_share(Learner& learner, int rank, int ranks, std::uint32_t batch) {
  const std::uint64_t samples = learner.test_samples();
  HeldOutSums sums;
  std::vector<std::uint32_t> chosen;
  for (auto sample = static_cast<std::uint64_t>(rank); sample < samples;) {
    chosen.clear();
    for (; chosen.size() < batch && sample < samples; sample += static_cast<std::uint64_t>(ranks)) {
      chosen.push_back(static_cast<std::uint32_t>(sample));
    }
    const Verdict verdict = learner.evaluate(chosen);
    sums.add({.loss = verdict.loss * verdict.count,
              .correct = verdict.correct,
              .count = verdict.count,
              .top5_correct = verdict.top5_correct});
  }
  return sums;
}

std::vector<std::span<std::byte>> bytes_of_buffers(Learner& learner) {
  std::vector<std::span<std::byte>> arrays;
  for (const std::span<float> buffer : learner.buffers()) arrays.push_back(std::as_writable_bytes(buffer));
  std::ranges::copy(learner.other_buffers(), std::back_inserter(arrays));
  return arrays;
}

std::uint32_t checksum_of_buffers(Learner& learner, std::uint32_t checksum) {
  for (const std::span<std::byte> buffer : bytes_of_buffers(learner)) checksum = crc32c(buffer, checksum);
  return checksum;
}

std::string network_fact(const std::vector<gradient::Parameter>& parameters) {
  std::uint32_t names = 0;
  std::string list;
  for (const gradient::Parameter& parameter : parameters) {
    const std::string line = fmt::format("{} {}\n", parameter.name, parameter.size);
    names = crc32c(std::as_bytes(std::span(line)), names);
    list += fmt::format("{}{} of {} values", list.empty() ? ": " : ", ", parameter.name, parameter.size);
  }
  return fmt::format("{} ({:08x}){}", parameters.size(), names, list);
}

std::string buffers_fact(Learner& learner) {
  std::size_t bytes = 0;
  const std::vector<std::span<std::byte>> buffers = bytes_of_buffers(learner);
  for (const std::span<std::byte> buffer : buffers) bytes += buffer.size();
  return fmt::format("{} of {} bytes", buffers.size(), bytes);
}

}  // namespace tulle::nn
