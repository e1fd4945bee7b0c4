// A learner without torch: a linear model of small whole numbers, on which every sum is exact.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "nn/learner.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::testing {

/// y = first · x + second · z, with half the mean square of the error as its loss.
class LinearLearner final : public nn::Learner {
 public:
  static constexpr std::size_t kFirst = 24, kSecond = 8;

  explicit LinearLearner(float start = 0) : first_(kFirst, start), second_(kSecond, start) {}

  std::uint64_t train_samples() const override { return 64; }
  std::uint64_t test_samples() const override { return held_out; }
  std::vector<gradient::Parameter> parameters() const override {
    return {{.name = "first", .size = kFirst}, {.name = "second", .size = kSecond, .role = gradient::Role::output}};
  }
  std::span<float> weights(std::size_t parameter) override {
    return parameter == 0 ? std::span(first_) : std::span(second_);
  }
  std::vector<std::span<float>> buffers() override { return {running}; }
  std::vector<std::span<std::byte>> other_buffers() override {
    return {std::as_writable_bytes(std::span(&counter, 1))};
  }
  double predictions_of(std::span<const std::uint32_t> samples) const override {
    double sum = 0;
    for (const std::uint32_t sample : samples) sum += predictions_of(sample);
    return sum;
  }
  void prepare(std::span<const std::uint32_t> samples, std::uint64_t, double weight) override {
    batch_.assign(samples.begin(), samples.end());
    weight_ = weight;
  }
  nn::Verdict run(std::uint64_t, const Needed& needed, const Ready& ready) override {
    steps += 1;
    at_start.push_back(all());
    for (const std::size_t parameter : {0u, 1u}) {
      if (needed) needed(parameter);
    }
    at_use.push_back(all());
    if (before_back) before_back(steps);
    if (steps == fails_at) throw Error(ErrorKind::bad_input, "no more");
    gradients_ = {std::vector<float>(kFirst), std::vector<float>(kSecond)};
    double loss = 0;
    const auto count = static_cast<float>(predictions());
    for (const std::uint32_t sample : batch_) {
      const float error = predict(sample) - target(sample);
      const auto share = static_cast<float>(predictions_of(sample));
      loss += share * error * error / 2;
      for (std::size_t j = 0; j < kFirst; ++j) gradients_[0][j] += share * error * input(sample, j) / count;
      for (std::size_t j = 0; j < kSecond; ++j) gradients_[1][j] += share * error * input(sample, kFirst + j) / count;
    }
    for (std::vector<float>& gradient : gradients_) {
      for (float& value : gradient) value *= static_cast<float>(weight_);
    }
    for (const std::size_t parameter : {1u, 0u}) {
      if (!ready) continue;
      order.push_back(parameter);
      ready(parameter, gradients_[parameter]);
    }
    running[0] += 1;
    counter += 1;
    return {.loss = loss / count, .count = count, .forward_seconds = steps == 1 ? 100.0 : 0.5};
  }
  double predictions() const override { return predictions_of(batch_); }
  std::span<const float> gradient(std::size_t parameter) override { return gradients_[parameter]; }
  nn::Verdict evaluate(std::span<const std::uint32_t> samples) override {
    if (before_evaluation) before_evaluation();
    return {.loss = held_out_loss.value_or(running[0]), .correct = 1, .count = static_cast<double>(samples.size())};
  }

  std::vector<float> all() const {
    std::vector<float> weights = first_;
    weights.insert(weights.end(), second_.begin(), second_.end());
    return weights;
  }

  std::vector<float> running = {0};
  int counter = 0;                           ///< of steps, that a checkpoint has to keep
  std::uint64_t held_out = 10;               ///< samples
  std::optional<double> held_out_loss = {};  ///< unset: `running`
  std::function<void()> before_evaluation;
  std::vector<std::size_t> order;                    ///< in which gradients were handed over
  std::vector<std::vector<float>> at_start, at_use;  ///< weights in each step
  std::function<void(int step)> before_back;         ///< called between the passes of a step, from 1
  int steps = 0, fails_at = 0;
  bool is_uneven = false;  ///< samples have 1, 3 or 5 predictions, as sentences have words

 private:
  double predictions_of(std::uint32_t sample) const { return is_uneven ? 1 + 2 * (sample % 3) : 1; }
  static float input(std::uint32_t sample, std::size_t feature) {
    return static_cast<float>(Philox(1, sample).at(feature) % 3) - 1;
  }
  static float target(std::uint32_t sample) { return static_cast<float>(Philox(2, sample).at(0) % 5) - 2; }
  float predict(std::uint32_t sample) const {
    float sum = 0;
    for (std::size_t j = 0; j < kFirst; ++j) sum += first_[j] * input(sample, j);
    for (std::size_t j = 0; j < kSecond; ++j) sum += second_[j] * input(sample, kFirst + j);
    return sum;
  }

  std::vector<float> first_, second_;
  std::vector<std::uint32_t> batch_;
  double weight_ = 1;
  std::vector<std::vector<float>> gradients_{2};
};

}  // namespace tulle::testing
