// What the steps of a training are made of: how long the forward pass takes, and back-propagation of each parameter.
//
// How it works. A gradient that is handed over ends the share of its parameter and begins that of the next one. What is
// done with the gradient meanwhile, such as starting its exchange, is not counted. The first step warms caches up and
// is left out where others follow.
//
// Threads: one, which computes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tulle/gradient/training_trace.hpp"

namespace tulle::nn {

class StepRecorder {
 public:
  explicit StepRecorder(std::size_t parameters) : backward_seconds_(parameters) {}

  void begin_step();
  /// The gradient of `parameter` is there, and the clock stops until go_on().
  void stop_at(std::size_t parameter);
  void go_on() { last_ = Clock::now(); }
  /// How far the scales of a matrix's rows lie apart, for gradients that are drawn. A pass, while the clock stands.
  void note_rows(std::size_t parameter, std::span<const float> gradient, std::uint64_t rows);
  /// `forward_seconds` are those of the step, which the first gradient was given after.
  void end_step(double forward_seconds);

  /// Means over the steps; spreads of rows are those of the last one.
  gradient::TrainingTrace trace(const std::vector<gradient::Parameter>& parameters) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Share {
    std::size_t parameter;
    double seconds;
  };

  Clock::time_point last_;
  std::vector<Share> shares_;  // of this step
  std::uint64_t steps_ = 0;
  double forward_seconds_ = 0;
  std::vector<double> backward_seconds_;
  std::map<std::size_t, double> row_spreads_;
};

}  // namespace tulle::nn
