// How a pipeline undoes a step, and how it goes on with other ranks.
#include <algorithm>

#include "gradient/outlast.hpp"
#include "gradient/pipeline.hpp"

namespace tulle::gradient {

// An accumulator that counts as zeros needs no copy.
void Pipeline::save_before_step() {
  Before& before = journal_->begin(step_);
  before.is_empty = is_empty_;
  const auto copy = [](std::span<const float> from, PoolVector<float>& to) { to.assign(from.begin(), from.end()); };
  if (keeps_residual(common_.recipe) && !is_empty_) copy(accumulator_, before.accumulator);
  copy(velocity_, before.velocity);
  copy(outer_, before.outer);
  if (low_rank_) before.right_factor = low_rank_->right();
  before.threshold = threshold_;
  before.learned = *learned_;
  before.delivered_steps = delivered_steps_;
  std::ranges::copy(checksums_, before.checksums);
}

bool Pipeline::can_undo(std::uint64_t step) const {
  if (journal_ && journal_->find(step) != nullptr) return true;
  return step == step_ && !is_in_flight_;
}

// A step that was never begun has changed nothing.
void Pipeline::roll_back(std::uint64_t step) {
  if (const Before* const before = journal_ ? journal_->find(step) : nullptr) take_back(*before);
  step_ = step;
  if (journal_) journal_->forget();
}

void Pipeline::take_back(const Before& before) {
  is_empty_ = before.is_empty;
  if (keeps_residual(common_.recipe)) {
    if (is_empty_) std::ranges::fill(accumulator_, 0.0f);
    if (!is_empty_) std::ranges::copy(before.accumulator, accumulator_.begin());
  }
  std::ranges::copy(before.velocity, velocity_.begin());
  std::ranges::copy(before.outer, outer_.begin());
  if (low_rank_) std::ranges::copy(before.right_factor, low_rank_->right().begin());
  threshold_ = before.threshold;
  *learned_ = before.learned;
  delivered_steps_ = before.delivered_steps;
  std::ranges::copy(before.checksums, checksums_);
}

Task<> Pipeline::abandon() {
  Task<> exchange = outlast(request_), gathering = outlast(gathering_), flag = outlast(void_flag_);
  co_await exchange;
  co_await gathering;
  co_await flag;
  if (low_rank_) {
    Task<> factors = low_rank_->abandon();
    co_await factors;
  }
  is_in_flight_ = false;
  taken_ = {};
  outcome_ = {};
  contributions_ = {};
}

void Pipeline::move_to(const Communicator& channel) {
  channel_ = channel;
  if (low_rank_) low_rank_->move_to(channel);
}

void Pipeline::scale_pending(float factor) {
  for (float& value : accumulator_) value *= factor;
  for (float& value : velocity_) value *= factor;
}

void Pipeline::begin_anew() {
  *learned_ = {};
  delivered_steps_ = step_;
  std::ranges::fill(checksums_, 0u);
}

}  // namespace tulle::gradient
