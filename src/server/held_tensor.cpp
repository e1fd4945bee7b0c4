#include "server/held_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gradient/accumulate.hpp"
#include "tulle/base/error.hpp"

namespace tulle::server {

HeldTensor::HeldTensor(const Parameter& parameter, const CompressionContext& pull, const Sgd& sgd,
                       std::uint64_t staleness)
    : parameter_(parameter), pull_(pull), sgd_(sgd), staleness_(staleness), weights_(parameter.size) {
  change_.resize(parameter.size);
  if (sgd.momentum != 0) velocity_.resize(parameter.size);
}

// ---------------------------------------------------------------- pushes

std::uint64_t HeldTensor::offer(int worker, Push push) {
  line_[worker].push_back(std::move(push));
  return take_up(worker);
}

std::uint64_t HeldTensor::take_up(int worker) {
  std::deque<Push>& line = line_[worker];
  std::uint64_t dropped = 0;
  while (!line.empty()) {
    const bool is_late = line.front().base + staleness_ < version_;
    if (!is_late && !step_.emplace(worker, line.front()).second) break;
    line.pop_front();
    dropped += is_late ? 1 : 0;
  }
  return dropped;
}

void HeldTensor::forget(int worker) {
  line_.erase(worker);
  step_.erase(worker);
}

// ---------------------------------------------------------------- steps

bool HeldTensor::has_equal_weights() const {
  const double first = step_.begin()->second.weight;
  return std::ranges::all_of(step_, [first](const auto& item) { return item.second.weight == first; });
}

// Of equal weights it is the sum divided once, whatever the weight: the same bits as without.
void HeldTensor::write_mean(KernelReport& work) {
  if (has_equal_weights()) {
    PoolVector<AnyStream> changes;
    for (const auto& [worker, push] : step_) changes.push_back(push.change);
    const AnyStream sum = reduce_many(changes, Op::sum(), &work);
    gradient::write_dense(sum, static_cast<float>(step_.size()), change_);
    return;
  }
  double all = 0;
  for (const auto& [worker, push] : step_) all += push.weight;
  PoolVector<float> share(parameter_.size);
  std::ranges::fill(change_, 0.0f);
  for (const auto& [worker, push] : step_) {
    gradient::write_dense(push.change, static_cast<float>(all / push.weight), share);
    for (std::size_t i = 0; i < share.size(); ++i) change_[i] += share[i];
    work.dense_items += 2 * parameter_.size;
  }
}

HeldTensor::Advance HeldTensor::advance() {
  Advance done{.accepted = step_.size()};
  write_mean(done.work);
  const gradient::Accumulation how{.weight_decay = static_cast<float>(sgd_.weight_decay),
                                   .momentum = static_cast<float>(sgd_.momentum),
                                   .starts_empty = true};
  if (!gradient::accumulate(how, change_, weights_, velocity_, change_)) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: its velocity or the sum of what was pushed outgrew f32, in step {}; "
                            "lower the learning rate or clip the gradients",
                            parameter_.name, version_ + 1));
  }
  const auto rate = static_cast<float>(sgd_.rate * (sgd_.schedule ? sgd_.schedule(version_) : 1.0));
  for (float& value : change_) value *= rate;
  publish(change_);
  done.work.dense_items += 4 * parameter_.size;  // mean, optimizer, coding, model
  for (const auto& [worker, push] : step_) done.workers.push_back(worker);
  step_.clear();
  for (const auto& [worker, line] : line_) {
    if (!line.empty() && std::ranges::find(done.workers, worker) == done.workers.end()) done.workers.push_back(worker);
    done.dropped += take_up(worker);
  }
  return done;
}

void HeldTensor::publish(std::span<const float> change) {
  if (const auto at = gradient::inspect(change).not_finite_at) {
    throw Error(ErrorKind::bad_input,
                fmt::format("step {} of {} is not finite at index {}", version_, parameter_.name, *at));
  }
  CodedChange coded = pull_.compress(change, version_ + 1);
  gradient::subtract(weights_, coded.decoded);
  version_ += 1;
  model_.reset();
  StepUpdate& update = updates_.emplace_back(StepUpdate{version_, {}, body_of(std::move(coded.frame))});
  for (const auto& [worker, push] : step_) {
    update.accepted.push_back({static_cast<std::uint64_t>(worker), push.number});
  }
  forget_old_updates();
}

// Whoever is further behind is better served with the model. The last one stays: who waits for it is not behind.
void HeldTensor::forget_old_updates() {
  std::uint64_t bytes = 0, kept = 0;
  for (auto update = updates_.rbegin(); update != updates_.rend(); ++update, ++kept) {
    bytes += update->body.bytes();
    if (kept > 0 && bytes > parameter_.size * sizeof(float)) break;
  }
  updates_.erase(updates_.begin(), updates_.end() - static_cast<std::ptrdiff_t>(kept));
}

// ---------------------------------------------------------------- pulls

std::vector<const StepUpdate*> HeldTensor::updates_since(std::uint64_t version) const {
  const std::uint64_t missing = version_ - version;
  if (missing > updates_.size()) return {};
  std::vector<const StepUpdate*> updates;
  for (auto update = updates_.end() - static_cast<std::ptrdiff_t>(missing); update != updates_.end(); ++update) {
    updates.push_back(&*update);
  }
  return updates;
}

const Body& HeldTensor::model() {
  if (!model_) {
    Segments segments;
    segments.push_back(Buffer::copy_of(std::as_bytes(std::span(weights_))));
    model_ = body_of(std::move(segments));
  }
  return *model_;
}

std::vector<AcceptedPush> HeldTensor::last_accepted() const {
  return updates_.empty() ? std::vector<AcceptedPush>() : updates_.back().accepted;
}

// ---------------------------------------------------------------- state

gradient::SavedParameter HeldTensor::saved(std::vector<std::vector<float>>& storage) const {
  gradient::SavedParameter saved{.name = parameter_.name, .size = parameter_.size, .step = version_};
  const auto add = [&](const char* name, std::span<const float> values) {
    saved.arrays.push_back({name, storage.emplace_back(values.begin(), values.end())});
  };
  add("weights", weights_);
  if (sgd_.momentum != 0) add("velocity", velocity_);
  if (!pull_.error().empty()) add("pull_error", pull_.error());
  return saved;
}

void HeldTensor::require_fits(const gradient::SavedParameter& saved) const {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::bad_input, fmt::format("checkpoint of {}: {}", parameter_.name, why));
  };
  if (saved.size != parameter_.size) refuse(fmt::format("has {} values instead of {}", saved.size, parameter_.size));
  bool has_weights = false, has_velocity = false;
  for (const gradient::SavedArray& array : saved.arrays) {
    if (array.values.size() != parameter_.size) refuse(array.name + " has another size");
    has_weights |= array.name == "weights";
    has_velocity |= array.name == "velocity";
    if (array.name == "pull_error" && !pull_.keeps_error()) refuse("it keeps what pulls owe, and this recipe does not");
  }
  if (!has_weights) refuse("has no weights");
  if (has_velocity != (sgd_.momentum != 0)) refuse("one has momentum and the other has not");
}

void HeldTensor::restore(const gradient::SavedParameter& saved) {
  version_ = saved.step;
  model_.reset();
  updates_.clear();
  pull_.restore({});
  for (const auto& [name, values] : saved.arrays) {
    if (name == "weights") weights_.assign(values.begin(), values.end());
    if (name == "velocity") velocity_.assign(values.begin(), values.end());
    if (name == "pull_error") pull_.restore(values);
  }
}

}  // namespace tulle::server
