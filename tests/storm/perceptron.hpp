// A network with two hidden layers that learns a rule: what the ranks of a training in the lab compute.
//
// It is here so that such a training needs no libtorch: it has a model of millions of values, gradients that follow
// from the weights, and a loss that falls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::storm {

/// Inputs, row after row, and the class of each.
struct Batch {
  std::vector<float> inputs;
  std::vector<std::size_t> classes;
};

/// Normal noise; the class of a row is the part of it with the largest sum. The same for the same arguments.
Batch make_batch(std::uint64_t shard, std::uint64_t step);

class Perceptron {
 public:
  /// Weights are the same for the same number of hidden units.
  explicit Perceptron(std::size_t hidden);

  std::vector<gradient::Parameter> parameters() const;
  std::span<float> weights() { return weights_; }
  /// Writes the gradient of the batch's mean loss, and gives that. REQUIRES: as many values as there are weights.
  double differentiate(const Batch& batch, std::span<float> gradient) const;
  /// The part of `values` that belongs to each parameter.
  std::vector<std::span<float>> layers_of(std::span<float> values) const;

 private:
  struct Layer {
    std::size_t inputs, outputs, begin;  ///< the weight from i to o is at begin + i · outputs + o
  };

  std::vector<float> forward(const Layer& layer, const std::vector<float>& inputs) const;
  // Adds to the layer's part of the gradient, and gives the slopes of the layer before it.
  std::vector<float> backward(const Layer& layer, const std::vector<float>& inputs, const std::vector<float>& slopes,
                              std::span<float> gradient) const;

  std::vector<Layer> layers_;
  std::vector<float> weights_;
};

}  // namespace tulle::storm
