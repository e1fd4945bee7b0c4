#include "nn/step_recorder.hpp"

#include <algorithm>

namespace tulle::nn {

void StepRecorder::begin_step() {
  if (steps_ == 1) {
    forward_seconds_ = 0;
    std::ranges::fill(backward_seconds_, 0.0);
  }
  steps_ += 1;
  shares_.clear();
  go_on();
}

void StepRecorder::stop_at(std::size_t parameter) {
  shares_.push_back({parameter, std::chrono::duration<double>(Clock::now() - last_).count()});
}

void StepRecorder::end_step(double forward_seconds) {
  if (!shares_.empty()) shares_.front().seconds = std::max(0.0, shares_.front().seconds - forward_seconds);
  forward_seconds_ += forward_seconds;
  for (const Share& share : shares_) backward_seconds_[share.parameter] += share.seconds;
}

gradient::TrainingTrace StepRecorder::trace(const std::vector<gradient::Parameter>& parameters) const {
  const double steps = static_cast<double>(std::max<std::uint64_t>(1, steps_ > 1 ? steps_ - 1 : steps_));
  gradient::TrainingTrace trace{.forward_seconds = forward_seconds_ / steps};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    trace.parameters.push_back({parameters[i], backward_seconds_[i] / steps});
  }
  return trace;
}

}  // namespace tulle::nn
