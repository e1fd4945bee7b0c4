// The weights of SGD, with L1 and L2 applied when a weight is next looked at, so that a step costs its non-zeros.
//
//   scaled   η is the same for all weights. One step is w ← shrink((1 − η·l2)·w − η·g, η·l1): proximal SGD. A weight
//            without gradient only shrinks, and many such steps have a closed form.
//   adagrad  η/√(Σ g²) of each weight, and penalties by what all steps together ask for.
// Weights are read without being written, so threads may read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "linear/batches.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/linear/model.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::linear {

/// Places in a gradient: `vectors` times the features and then the intercept.
struct GradientLayout {
  std::size_t vectors = 1;
  std::uint64_t features = 0;

  std::uint64_t stride() const { return features + 1; }
  std::uint64_t dimension() const { return vectors * stride(); }
};

class Weights {
 public:
  Weights(GradientLayout layout, Penalty penalty) : layout_(layout), penalty_(penalty), intercepts_(layout.vectors) {}
  virtual ~Weights() = default;

  /// margins[r] = w·x + intercept of row r, for one vector.
  virtual void margins(const Batch& batch, std::size_t vector, std::span<float> margins, int threads) const = 0;
  /// One step of rate η by `gradient` / rows; what lies behind the layout's places is ignored. Gives how many values of
  /// the gradient were not zero.
  virtual std::uint64_t step(const AnyStream& gradient, double rate, double rows) = 0;
  /// All weights as they are now.
  virtual void copy_to(std::span<float> weights) const = 0;
  std::span<const float> intercepts() const { return intercepts_; }
  /// What they start from. REQUIRES: one a vector.
  void set_intercepts(std::span<const float> intercepts) { std::ranges::copy(intercepts, intercepts_.begin()); }

  /// Everything, as bytes that restore() takes: for checkpoints.
  virtual std::vector<std::span<std::byte>> state() = 0;

 protected:
  GradientLayout layout_;
  Penalty penalty_;
  PoolVector<float> intercepts_;
};

std::unique_ptr<Weights> make_scaled_weights(GradientLayout layout, Penalty penalty);
/// Where there are `feature_rates`, a feature's rate is multiplied by its own; all rates, also of intercepts, are
/// multiplied by `scale`.
std::unique_ptr<Weights> make_adagrad_weights(GradientLayout layout, Penalty penalty,
                                              std::vector<float> feature_rates = {}, double scale = 1);

}  // namespace tulle::linear
