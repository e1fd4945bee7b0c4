// What an update does to the weights, parameter by parameter.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tulle/nn/options.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::nn {

class Optimizer {
 public:
  /// `sizes` of the parameters. Memory: one f32 a weight for momentum, two for adamw.
  Optimizer(const OptimizerOptions& options, std::span<const std::uint64_t> sizes);

  /// True where weights that an update does not name stay as they are, so that apply_sparse() will do.
  bool is_plain() const;
  /// One step of parameter `place`.
  void apply(std::size_t place, std::span<float> weights, std::span<const float> update, double rate);
  /// The same for an f32 stream. REQUIRES: is_plain().
  void apply_stream(std::span<float> weights, const AnyStream& update, double rate) const;

  /// What is kept between steps, for checkpoints: the same number of arrays of the same sizes in every run.
  std::vector<std::span<std::byte>> state();

 private:
  void apply_sgd(std::size_t place, std::span<float> weights, std::span<const float> update, float rate);
  void apply_adamw(std::size_t place, std::span<float> weights, std::span<const float> update, double rate);

  OptimizerOptions options_;
  std::vector<std::vector<float>> first_, second_;  // momentum; adamw: both moments
  std::vector<std::uint64_t> steps_;                // of each parameter
};

}  // namespace tulle::nn
