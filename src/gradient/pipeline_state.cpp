// What a pipeline keeps between steps, as it is saved and loaded.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gradient/pipeline.hpp"
#include "tulle/base/error.hpp"

namespace tulle::gradient {

// By name, in the order in which they are saved. Without error feedback the accumulator keeps nothing.
std::vector<std::pair<const char*, std::span<float>>> Pipeline::kept_arrays() {
  std::vector<std::pair<const char*, std::span<float>>> arrays;
  if (keeps_residual(common_.recipe)) arrays.emplace_back("residual", accumulator_);
  if (!velocity_.empty()) arrays.emplace_back("momentum", velocity_);
  if (!outer_.empty()) arrays.emplace_back("outer_momentum", outer_);
  if (low_rank_) arrays.emplace_back("right_factor", low_rank_->right());
  return arrays;
}

SavedParameter Pipeline::saved() const {
  if (is_in_flight_) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is in flight: finish it before its state is saved", parameter_.name));
  }
  SavedParameter saved{.name = parameter_.name,
                       .size = parameter_.size,
                       .step = step_,
                       .threshold = std::isfinite(threshold_.threshold) ? threshold_.threshold : 0,
                       .threshold_age = threshold_.age,
                       .algorithm = save_state(learned_->sparse),
                       .dense_algorithm = save_state(learned_->dense)};
  for (const auto& [name, values] : const_cast<Pipeline*>(this)->kept_arrays()) saved.arrays.push_back({name, values});
  return saved;
}

void Pipeline::require_fits(const SavedParameter& saved) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::bad_input, fmt::format("state of {}: {}", parameter_.name, why));
  };
  if (is_in_flight_) refuse("the parameter is in flight: finish it before it is loaded");
  if (saved.name != parameter_.name) refuse(fmt::format("the saved one is called {}", saved.name));
  if (saved.size != parameter_.size)
    refuse(fmt::format("the saved one has {} values, not {}", saved.size, parameter_.size));
  const auto arrays = const_cast<Pipeline*>(this)->kept_arrays();
  for (const auto& [name, values] : arrays) {
    const auto found = std::ranges::find(saved.arrays, name, &SavedArray::name);
    if (found == saved.arrays.end()) refuse(fmt::format("its {} was not saved: another recipe", name));
    if (found->values.size() != values.size()) refuse(fmt::format("its {} has another size", name));
  }
  if (arrays.size() != saved.arrays.size()) refuse("more was saved than this recipe keeps, and would be lost");
  if (!saved.algorithm.empty()) (void)load_state(saved.algorithm);
  if (!saved.dense_algorithm.empty()) (void)load_state(saved.dense_algorithm);
}

void Pipeline::restore(const SavedParameter& saved) {
  step_ = saved.step;
  threshold_ = {saved.threshold, saved.threshold_age};
  learned_->sparse = saved.algorithm.empty() ? AlgorithmState() : load_state(saved.algorithm);
  learned_->dense = saved.dense_algorithm.empty() ? AlgorithmState() : load_state(saved.dense_algorithm);
  for (const auto& [name, values] : kept_arrays()) {
    std::ranges::copy(std::ranges::find(saved.arrays, name, &SavedArray::name)->values, values.begin());
  }
  is_empty_ = !keeps_residual(common_.recipe);
  // Replicas are compared from here on, in steps that go by the same numbers.
  delivered_steps_ = saved.step;
  std::ranges::fill(checksums_, 0u);
  forget_steps();
}

}  // namespace tulle::gradient
