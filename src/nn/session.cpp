#include "nn/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/thrown.hpp"
#include "nn/job_settings.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle::nn {
namespace {

// Above all that parameters use.
constexpr std::uint32_t kVoteChannel = (1u << 24) - 1;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Before anything else is sent or refused, so that the option is named on all ranks.
const TrainerOptions& alike(Communicator communicator, const Learner& learner, const TrainerOptions& options) {
  require_same_settings(communicator, job_settings(options, learner));
  return options;
}

// What the pipeline does is not done twice.
TrainerOptions resolved(TrainerOptions options) {
  validate(options);
  options.synchronizer.seed = options.seed;
  if (options.recipe.momentum > 0) {
    options.optimizer.momentum = 0;
    options.optimizer.nesterov = false;
  }
  if (options.recipe.weight_decay > 0) options.optimizer.weight_decay = 0;
  return options;
}

std::vector<std::uint64_t> sizes_of(const std::vector<gradient::Parameter>& parameters) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(parameters.size());
  for (const gradient::Parameter& parameter : parameters) sizes.push_back(parameter.size);
  return sizes;
}

}  // namespace

Session::Session(const Communicator& communicator, Learner& learner, const TrainerOptions& options)
    : communicator_(communicator),
      votes_(communicator.channel(kVoteChannel)),
      learner_(learner),
      options_(resolved(alike(communicator, learner, options))),
      parameters_(learner.parameters()),
      synchronizer_(gradient::Synchronizer::make(communicator, parameters_, options_.recipe, options_.synchronizer)),
      optimizer_(options_.optimizer, sizes_of(parameters_)),
      sharding_(learner.train_samples(), communicator.size(), options_.batch, options_.seed),
      steps_of_epoch_(nn::steps_of_epoch(sharding_, options_)),
      starts_early_(options_.overlap && options_.recipe.every == 1 && options_.clip_norm == 0),
      is_pending_(parameters_.size()),
      saved_at_(Clock::now()) {
  if (options_.patience > 0 && learner.test_samples() == 0) {
    throw Error(ErrorKind::bad_input, "patience: there are no held-out samples to measure a loss on");
  }
  std::uint64_t largest = 0;
  for (const gradient::Parameter& parameter : parameters_) largest = std::max(largest, parameter.size);
  update_.resize(largest);
  if (options_.on_trace) recorder_.emplace(parameters_.size());
  agree_on_weights();
  const gradient::StepLogOptions& log = options_.step_log;
  if (!log.lines.empty() || !log.trace.empty()) log_ = gradient::StepLog::open(synchronizer_, log);
  if (options_.recipe.every > 1) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto weights = learner_.weights(i);
      before_.emplace_back(weights.begin(), weights.end());
    }
  }
}

// Networks are usually made from the same seed; then a checksum travels, and no weight.
void Session::agree_on_weights() {
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    checksum = crc32c(std::as_bytes(std::span<const float>(learner_.weights(i))), checksum);
  }
  checksum = checksum_of_buffers(learner_, checksum);
  const double mine[] = {static_cast<double>(checksum), -static_cast<double>(checksum)};
  const std::vector<double> most = combine(communicator_, mine, Op::max());
  if (most[0] == -most[1]) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::span<float> weights = learner_.weights(i);
    AnyStream stream = Stream<float>::dense(std::span<const float>(weights));
    broadcast(communicator_, stream);
    std::ranges::copy(Stream<float>(stream).to_vector(), weights.begin());
  }
  take_buffers_of_rank0();
}

void Session::take_buffers_of_rank0() {
  const std::vector<std::span<std::byte>> buffers = bytes_of_buffers(learner_);
  std::vector<std::byte> mine;
  for (const std::span<std::byte> buffer : buffers) mine.insert(mine.end(), buffer.begin(), buffer.end());
  const Buffer taken = give_bytes(communicator_, Buffer::copy_of(mine), /*first_taker=*/1);
  const std::exception_ptr refusal = failure_of([&] {
    if (communicator_.rank() == 0 || taken.size() == mine.size()) return;
    throw Error(ErrorKind::bad_input,
                fmt::format("buffers have {} bytes, and {} on rank 0", mine.size(), taken.size()));
  });
  fail_together(communicator_, refusal);
  if (communicator_.rank() == 0) return;
  std::span<const std::byte> rest = taken.bytes();
  for (const std::span<std::byte> buffer : buffers) {
    std::ranges::copy(rest.first(buffer.size()), buffer.begin());
    rest = rest.subspan(buffer.size());
  }
}

// What fails on this rank alone, maybe in users' code, would leave the others waiting for it.
template <class Work>
auto Session::told_to_all(Work work) {
  try {
    return work();
  } catch (...) {
    break_communicator(communicator_, error_of(std::current_exception(), "the training failed"));
    throw;
  }
}

TrainResult Session::train() {
  told_to_all([&] {
    begin_run();
    if (options_.checkpoint.resume) resume();
    while (!is_over()) {
      run_epoch();
      if (is_stopping_) break;
      finish_epoch();
      note_gain();
    }
    if (vote_.valid()) vote_.wait();
    if (log_) log_->close();
  });
  if (!options_.checkpoint.path.empty()) save();
  lock_.reset();
  tell_trace();
  return {.epochs = state_.epochs,
          .was_stopped = is_stopping_,
          .was_resumed = was_resumed_,
          .checkpoint_error = checkpoint_error_,
          .report = synchronizer_.report()};
}

void Session::tell_trace() const {
  if (!recorder_) return;
  gradient::TrainingTrace trace = recorder_->trace(parameters_);
  trace.batch = options_.batch;
  trace.overlap = options_.clip_norm == 0;
  options_.on_trace(trace);
}

void Session::run_epoch() {
  const std::uint64_t all = steps_of_epoch_ * static_cast<std::uint64_t>(options_.epochs);
  if (state_.step_of_epoch < steps_of_epoch_) {
    prepare(state_.step_of_epoch);
  }
  while (state_.step_of_epoch < steps_of_epoch_ && !is_stopping_) {
    const auto started = Clock::now();
    step();
    state_.seconds += seconds_since(started);
    if (state_.step_of_epoch == steps_of_epoch_) finish_in_time();
    if (communicator_.rank() == 0 && options_.on_step) options_.on_step(state_.steps, all);
    agree_on_stop();
  }
  finish_in_time();
}

// Waiting is a part of the training's time, wherever it is done: what is waited for is no more than what it took.
void Session::finish_in_time() {
  const auto started = Clock::now();
  finish_all();
  state_.seconds += seconds_since(started);
}

// What hooks do is in the middle of foreign code, which must not see exceptions.
template <class Work>
void Session::guard(Work work) {
  if (failure_) return;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Session::step() {
  const std::uint64_t exchanges = synchronizer_.steps();
  const Learner::Needed needed = [this](std::size_t parameter) { guard([&] { finish(parameter); }); };
  const Learner::Ready ready = [this](std::size_t parameter, std::span<const float> gradient) {
    take(parameter, gradient);
  };
  const std::uint64_t seed = step_seed(options_.seed, communicator_.rank(), state_.steps);
  const bool waits_inside = options_.overlap && !recorder_;  // waiting is no part of what a forward pass computes
  if (recorder_) recorder_->begin_step();
  const Verdict verdict = learner_.run(seed, waits_inside ? needed : Learner::Needed(),
                                       starts_early_ || recorder_ ? ready : Learner::Ready());
  if (recorder_) recorder_->end_step(verdict.forward_seconds);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  state_.loss_sum += verdict.loss * weight_;
  rate_ = rate_now();
  if (options_.recipe.every > 1) {
    step_alone();
  } else {
    exchange_gradients();
  }
  if (!waits_inside) finish_all();
  if (log_ && synchronizer_.steps() != exchanges) log_exchange(verdict.loss);
  state_.step_of_epoch += 1;
  state_.steps += 1;
}

// A line is about an exchange that is over, so that this one cannot hide behind the next forward pass.
void Session::log_exchange(double loss) {
  finish_all();
  log_->add_step({.loss = loss});
}

// In the middle of back-propagation, which is foreign code.
void Session::take(std::size_t parameter, std::span<const float> gradient) {
  if (recorder_) {
    recorder_->stop_at(parameter);
    recorder_->note_rows(parameter, gradient, parameters_[parameter].rows);
  }
  if (starts_early_) guard([&] { start(parameter, gradient); });
  if (recorder_) recorder_->go_on();
}

// Ranks may also train each for itself, or exchange how far they have come in several steps.
bool Session::sums_gradients() const {
  return options_.recipe.every == 1 && options_.recipe.exchange != gradient::Exchange::none;
}

double Session::rate_now() const {
  const bool scales = options_.scale_rate && sums_gradients() && options_.recipe.aggregate != gradient::Aggregate::sum;
  return options_.rate * rate_factor(options_, state_.steps, steps_of_epoch_) * (scales ? communicator_.size() : 1);
}

void Session::start(std::size_t parameter, std::span<const float> gradient) {
  const auto started = Clock::now();
  const bool wants_weights = options_.recipe.weight_decay > 0;
  synchronizer_.start(static_cast<gradient::ParameterId>(parameter), gradient,
                      wants_weights ? learner_.weights(parameter) : std::span<const float>{});
  state_.start_seconds += seconds_since(started);
}

void Session::start_all() {
  const double clip = clip_factor(learner_, parameters_.size(), options_.clip_norm, communicator_.size());
  const auto factor = static_cast<float>(clip);
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const std::span<const float> gradient = learner_.gradient(i);
    if (gradient.empty() && parameters_[i].size > 0) continue;  // end_step() skips it
    if (factor == 1) {
      start(i, gradient);
      continue;
    }
    std::ranges::transform(gradient, update_.begin(), [factor](float value) { return factor * value; });
    start(i, std::span<const float>(update_).first(gradient.size()));
  }
}

void Session::exchange_gradients() {
  if (!starts_early_) start_all();
  end_exchange();
}

// From here on updates are waited for: each before its parameter is used, or all in finish_all().
void Session::end_exchange() {
  compare_weights();
  synchronizer_.end_step();
  is_pending_.assign(parameters_.size(), true);
  prepare_next();
}

// Every update of the exchange before has been applied, and none of this one. Weights that ranks change by themselves
// between exchanges are compared as the exchange before left them.
void Session::compare_weights() {
  if (!synchronizer_.wants_weights() || options_.recipe.exchange == gradient::Exchange::none) return;
  if (communicator_.size() == 1) return;
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::span<const float> weights = before_.empty() ? learner_.weights(i) : std::span<const float>(before_[i]);
    hashes.push_back(crc32c(std::as_bytes(weights)));
  }
  synchronizer_.compare_weights(hashes);
}

void Session::finish_all() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) finish(i);
}

void Session::finish(std::size_t parameter) {
  if (!is_pending_[parameter]) return;
  is_pending_[parameter] = false;
  if (options_.recipe.every > 1) {
    apply_change(parameter);
  } else {
    apply_gradient(parameter);
  }
  count(parameter);
}

void Session::apply_gradient(std::size_t parameter) {
  const auto id = static_cast<gradient::ParameterId>(parameter);
  const std::span<float> weights = learner_.weights(parameter);
  if (optimizer_.is_plain()) {
    const gradient::Update update = synchronizer_.finish(id);
    if (!update.is_skipped) optimizer_.apply_stream(weights, update.stream, rate_);
  } else {
    const std::span<float> update = std::span(update_).first(weights.size());
    if (synchronizer_.finish_into(id, update)) optimizer_.apply(parameter, weights, update, rate_);
  }
}

void Session::apply_change(std::size_t parameter) {
  const std::span<float> weights = learner_.weights(parameter);
  const std::span<float> update = std::span(update_).first(weights.size());
  const bool is_delivered = synchronizer_.finish_into(static_cast<gradient::ParameterId>(parameter), update);
  std::vector<float>& before = before_[parameter];
  for (std::size_t j = 0; j < weights.size(); ++j) weights[j] = before[j] - (is_delivered ? update[j] : 0.0f);
  std::ranges::copy(weights, before.begin());
}

void Session::count(std::size_t parameter) {
  const gradient::ParameterStats& stats = synchronizer_.stats(static_cast<gradient::ParameterId>(parameter));
  state_.exposed_seconds += stats.wait_seconds;
  state_.bytes_sent += static_cast<double>(stats.bytes_sent);
}

// Its gradient is not summed with others', and may be as long as one process allows.
void Session::step_alone() {
  const double clip = clip_factor(learner_, parameters_.size(), options_.clip_norm, /*ranks=*/1);
  const auto factor = static_cast<float>(clip);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::span<const float> gradient = learner_.gradient(i);
    if (gradient.empty()) continue;
    if (factor != 1) {
      std::ranges::transform(gradient, update_.begin(), [factor](float value) { return factor * value; });
      gradient = std::span<const float>(update_).first(gradient.size());
    }
    optimizer_.apply(i, learner_.weights(i), gradient, rate_);
  }
  // An epoch ends with an exchange, so that what is measured and saved is one model and not one of each rank.
  const bool is_due = synchronizer_.count_local_step() || state_.step_of_epoch + 1 == steps_of_epoch_;
  if (is_due) exchange_changes();
  if (!is_due) prepare_next();
}

void Session::exchange_changes() {
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const std::span<const float> weights = learner_.weights(i);
    const std::span<float> change = std::span(update_).first(weights.size());
    for (std::size_t j = 0; j < weights.size(); ++j) change[j] = before_[i][j] - weights[j];
    start(i, change);
  }
  end_exchange();
}

// While the last gradients travel.
void Session::prepare_next() {
  const std::uint64_t next = state_.step_of_epoch + 1;
  if (next < steps_of_epoch_) prepare(next);
}

void Session::prepare(std::uint64_t step) {
  weight_ = weight_of(step);
  learner_.prepare(sharding_.batch(state_.epoch, step, communicator_.rank()), state_.epoch, weight_);
}

// Ranks' gradients are means of as many predictions as their samples have, and all count alike in the exchange. Times
// this they are the gradient of all samples. Ranks know each other's samples, so that no message is needed.
double Session::weight_of(std::uint64_t step) {
  if (!sums_gradients()) return 1;
  const double all = learner_.predictions_of(sharding_.batches(state_.epoch, step));
  const double mine = learner_.predictions_of(sharding_.batch(state_.epoch, step, communicator_.rank()));
  if (!(mine >= 0) || !std::isfinite(all) || all < mine) {
    throw Error(ErrorKind::bad_input, fmt::format("predictions: {} of {} in all", mine, all));
  }
  return all > 0 ? mine * communicator_.size() / all : 1;
}

// What ranks wish in a step is known in the next one: nobody waits for it.
void Session::agree_on_stop() {
  std::vector<double> wishes(2);
  if (vote_.valid()) wishes = vote_.wait();
  is_stopping_ = wishes[0] > 0;
  if (wishes[1] > 0) {
    finish_in_time();
    save();
  }
  if (is_stopping_) return;
  const bool wants_stop = options_.stop_requested && options_.stop_requested();
  const bool wants_save = communicator_.rank() == 0 && !options_.checkpoint.path.empty() && wishes[1] == 0 &&
                          seconds_since(saved_at_) >= options_.checkpoint.seconds;
  const double mine[] = {wants_stop ? 1.0 : 0.0, wants_save ? 1.0 : 0.0};
  vote_ = icombine(votes_, mine, Op::max());
}

void Session::finish_epoch() {
  const double last_rate = [&] {
    state_.steps -= 1;  // the rate of the step that was the last
    const double rate = rate_now();
    state_.steps += 1;
    return rate;
  }();
  const double ranks = communicator_.size();
  const double mine[] = {state_.loss_sum, state_.exposed_seconds, state_.start_seconds, state_.bytes_sent};
  const std::vector<double> sums = combine(communicator_, mine);
  const double my_seconds[] = {state_.seconds};
  const std::vector<double> slowest = combine(communicator_, my_seconds, Op::max());
  state_.epoch += 1;
  EpochMetrics metrics{.epoch = static_cast<int>(state_.epoch),
                       .steps = state_.steps,
                       .loss = sums[0] / ranks / static_cast<double>(steps_of_epoch_),
                       .seconds = slowest[0],
                       .exposed_seconds = sums[1] / ranks,
                       .start_seconds = sums[2] / ranks,
                       .bytes_sent = sums[3] / ranks,
                       .rate = last_rate};
  metrics.held_out = evaluate();
  state_.epochs.push_back(metrics);
  state_.step_of_epoch = 0;
  state_.loss_sum = 0;
  if (communicator_.rank() == 0 && options_.on_epoch) options_.on_epoch(metrics);
}

void Session::note_gain() {
  const double loss = state_.epochs.back().held_out.loss;
  const bool is_first = state_.epoch == 1 || std::isnan(state_.best_loss);
  const bool has_gained = !std::isnan(loss) && (is_first || loss < state_.best_loss);
  state_.epochs_without_gain = has_gained ? 0 : state_.epochs_without_gain + 1;
  if (has_gained || is_first) state_.best_loss = loss;
}

bool Session::has_converged() const { return options_.patience > 0 && state_.epochs_without_gain >= options_.patience; }

bool Session::is_over() const { return state_.epoch >= static_cast<std::uint64_t>(options_.epochs) || has_converged(); }

Evaluation Session::evaluate() {
  return told_to_all([&] {
    agree_on_buffers();
    const HeldOutSums mine =
        evaluate_share(learner_, communicator_.rank(), communicator_.size(), options_.evaluation_batch);
    return combine_held_out(communicator_, mine).mean();
  });
}

void Session::agree_on_buffers() {
  std::vector<float> values;
  for (const std::span<float> buffer : learner_.buffers()) values.insert(values.end(), buffer.begin(), buffer.end());
  if (values.empty() || communicator_.size() == 1) return;
  AnyStream stream = Stream<float>::dense(std::span<const float>(values));
  if (options_.buffers == Buffers::rank0) {
    broadcast(communicator_, stream);
  } else {
    allreduce(communicator_, stream, {.reproducible = true});
  }
  values = Stream<float>(stream).to_vector();
  const float share = options_.buffers == Buffers::rank0 ? 1.0f : 1.0f / static_cast<float>(communicator_.size());
  auto from = values.begin();
  for (const std::span<float> buffer : learner_.buffers()) {
    for (float& value : buffer) value = *from++ * share;
  }
}

void Session::tell(const std::string& message) const {
  if (communicator_.rank() == 0 && options_.on_message) options_.on_message(message);
}

}  // namespace tulle::nn
