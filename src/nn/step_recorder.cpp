#include "nn/step_recorder.hpp"

#include <algorithm>
#include <cmath>

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

// Of rows without a gradient, such as those of words that do not occur, nothing is known. The scale that is seen of n
// values varies by 1/(2n) also where all rows have one.
void StepRecorder::note_rows(std::size_t parameter, std::span<const float> gradient, std::uint64_t rows) {
  const std::size_t length = rows > 0 ? gradient.size() / rows : 0;
  if (rows < 2 || length == 0) return;
  double count = 0, sum = 0, squares = 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    double energy = 0;
    for (const float value : gradient.subspan(row * length, length)) energy += static_cast<double>(value) * value;
    if (energy == 0) continue;
    const double scale = std::log(energy / static_cast<double>(length)) / 2;
    count += 1;
    sum += scale;
    squares += scale * scale;
  }
  if (count < 2) return;
  const double variance = (squares - sum * sum / count) / (count - 1) - 1 / (2 * static_cast<double>(length));
  row_spreads_[parameter] = std::min(std::sqrt(std::max(variance, 0.0)), gradient::kMostRowSpread);
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
    const auto spread = row_spreads_.find(i);
    if (spread != row_spreads_.end()) trace.parameters.back().row_spread = spread->second;
  }
  return trace;
}

}  // namespace tulle::nn
