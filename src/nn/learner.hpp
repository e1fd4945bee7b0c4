// The seam between a training and the library that computes gradients: arrays on this side, tensors on the other.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::nn {

/// What a network said about some samples.
struct Verdict {
  double loss = 0;             ///< mean, without the weight of prepare()
  double correct = 0;          ///< predictions that were right
  double count = 0;            ///< predictions
  double top5_correct = 0;     ///< that had the right answer among the five likeliest, on held-out samples
  double forward_seconds = 0;  ///< of run(), where the learner knows: until back-propagation began
};

/// One rank's copy of a network, with its data. Used by one thread.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual std::uint64_t train_samples() const = 0;
  virtual std::uint64_t test_samples() const = 0;

  /// In the order in which the network uses them. Names and sizes are the same on all ranks, and never change.
  virtual std::vector<gradient::Parameter> parameters() const = 0;
  /// Where the weights of a parameter lie, for as long as the learner lives.
  virtual std::span<float> weights(std::size_t parameter) = 0;
  /// Running means and the like, which are not trained.
  virtual std::vector<std::span<float>> buffers() = 0;
  /// What else the network keeps that is no f32: counters, masks.
  virtual std::vector<std::span<std::byte>> other_buffers() { return {}; }

  /// What the loss of these training samples is the mean of, such as words. The same on all ranks.
  virtual double predictions_of(std::span<const std::uint32_t> samples) const = 0;
  /// Gets the samples of the next run() ready, whose gradients are multiplied by `weight`.
  virtual void prepare(std::span<const std::uint32_t> samples, std::uint64_t epoch, double weight) = 0;
  /// Called before the forward pass reads a parameter's weights, which it may change: once or several times for each,
  /// and for all before back-propagation begins.
  using Needed = std::function<void(std::size_t parameter)>;
  /// Called with a parameter's gradient as soon as back-propagation has it.
  using Ready = std::function<void(std::size_t parameter, std::span<const float> gradient)>;
  /// Forward and back on what was prepared. What is random follows from `seed`. Functions that are empty are not
  /// called; they must not throw.
  virtual Verdict run(std::uint64_t seed, const Needed& needed, const Ready& ready) = 0;
  /// What the loss of run() is the mean of, as it says itself; known when back-propagation begins.
  virtual double predictions() const = 0;
  /// The gradient of the last run(); empty where the parameter took no part.
  virtual std::span<const float> gradient(std::size_t parameter) = 0;

  /// On held-out samples, without gradients.
  virtual Verdict evaluate(std::span<const std::uint32_t> samples) = 0;
};

}  // namespace tulle::nn
