#include "nn/optimizer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "tulle/base/error.hpp"

namespace tulle::nn {

std::string_view to_string(OptimizerKind kind) { return kind == OptimizerKind::sgd ? "sgd" : "adamw"; }

std::string_view to_string(Schedule schedule) {
  switch (schedule) {
    case Schedule::constant: return "constant";
    case Schedule::step: return "step";
    case Schedule::cosine: return "cosine";
  }
  return "";
}

Schedule schedule_from(std::string_view name) {
  for (const Schedule each : {Schedule::constant, Schedule::step, Schedule::cosine}) {
    if (to_string(each) == name) return each;
  }
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of constant, step, cosine", name));
}

std::string_view to_string(Buffers buffers) { return buffers == Buffers::rank0 ? "rank0" : "average"; }

double schedule_factor(const ScheduleOptions& options, std::uint64_t step, std::uint64_t steps,
                       std::uint64_t steps_of_epoch) {
  const double warm_up = options.warm_up_epochs * static_cast<double>(steps_of_epoch);
  const auto now = static_cast<double>(step);
  if (now < warm_up) return (now + 1) / warm_up < 1 ? (now + 1) / warm_up : 1;
  const double done = now / static_cast<double>(steps);
  switch (options.schedule) {
    case Schedule::constant: return 1;
    case Schedule::step: return done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01;
    case Schedule::cosine: return (1 + std::cos(std::numbers::pi * done)) / 2;
  }
  return 1;
}

Optimizer::Optimizer(const OptimizerOptions& options, std::span<const std::uint64_t> sizes)
    : options_(options), first_(sizes.size()), second_(sizes.size()), steps_(sizes.size()) {
  const bool is_adamw = options.kind == OptimizerKind::adamw;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (is_adamw || options.momentum > 0) first_[i].resize(sizes[i]);
    if (is_adamw) second_[i].resize(sizes[i]);
  }
}

bool Optimizer::is_plain() const {
  return options_.kind == OptimizerKind::sgd && options_.momentum == 0 && options_.weight_decay == 0;
}

void Optimizer::apply(std::size_t place, std::span<float> weights, std::span<const float> update, double rate) {
  steps_[place] += 1;
  if (options_.kind == OptimizerKind::adamw) {
    apply_adamw(place, weights, update, rate);
  } else {
    apply_sgd(place, weights, update, static_cast<float>(rate));
  }
}

void Optimizer::apply_sgd(std::size_t place, std::span<float> weights, std::span<const float> update, float rate) {
  const auto decay = static_cast<float>(options_.weight_decay), momentum = static_cast<float>(options_.momentum);
  std::vector<float>& velocity = first_[place];
  if (velocity.empty()) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * (update[i] + decay * weights[i]);
    return;
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float gradient = update[i] + decay * weights[i];
    velocity[i] = momentum * velocity[i] + gradient;
    weights[i] -= rate * (options_.nesterov ? gradient + momentum * velocity[i] : velocity[i]);
  }
}

void Optimizer::apply_adamw(std::size_t place, std::span<float> weights, std::span<const float> update, double rate) {
  const auto step = static_cast<double>(steps_[place]);
  const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
  const auto scale = static_cast<float>(rate / (1 - std::pow(options_.beta1, step)));
  const auto spread = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, step)));
  const auto keep = static_cast<float>(1 - rate * options_.weight_decay),
             epsilon = static_cast<float>(options_.epsilon);
  std::vector<float>&first = first_[place], &second = second_[place];
  for (std::size_t i = 0; i < weights.size(); ++i) {
    first[i] = beta1 * first[i] + (1 - beta1) * update[i];
    second[i] = beta2 * second[i] + (1 - beta2) * update[i] * update[i];
    weights[i] = keep * weights[i] - scale * first[i] / (std::sqrt(second[i]) * spread + epsilon);
  }
}

namespace {

template <class Index>
void subtract(std::span<float> weights, std::span<const Index> indices, std::span<const float> values, float rate) {
  for (std::size_t i = 0; i < values.size(); ++i) weights[indices[i]] -= rate * values[i];
}

}  // namespace

void Optimizer::apply_stream(std::span<float> weights, const AnyStream& update, double rate) const {
  const Stream<float> stream(update);
  const std::span<const float> values = stream.values();
  const auto factor = static_cast<float>(rate);
  if (update.is_dense()) {
    const std::span<float> part = weights.subspan(update.range().begin);
    for (std::size_t i = 0; i < values.size(); ++i) part[i] -= factor * values[i];
  } else if (update.index_width() == sizeof(std::uint32_t)) {
    subtract(weights, stream.indices<std::uint32_t>(), values, factor);
  } else {
    subtract(weights, stream.indices<std::uint64_t>(), values, factor);
  }
}

std::vector<std::span<std::byte>> Optimizer::state() {
  std::vector<std::span<std::byte>> arrays;
  for (std::size_t i = 0; i < first_.size(); ++i) {
    arrays.push_back(std::as_writable_bytes(std::span(first_[i])));
    arrays.push_back(std::as_writable_bytes(std::span(second_[i])));
  }
  arrays.push_back(std::as_writable_bytes(std::span(steps_)));
  return arrays;
}

}  // namespace tulle::nn
