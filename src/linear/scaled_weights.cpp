// Weights with one learning rate for all: see weights.hpp.
//
// How it works. w = scale·v, where scale is the product of all (1 − η·l2), and L1 has taken `shrinkage` = Σ η·l1/scale
// from |v| in all, of which v has seen `seen`.
#include "linear/losses.hpp"
#include "linear/weights_common.hpp"

namespace tulle::linear {
namespace {

// Below this scale, v has lost as many bits as it can afford; folding costs N, but happens once in log(2^20)/(η·l2)
// steps.
constexpr double kSmallestScale = 0x1p-20;

class ScaledWeights final : public Weights {
 public:
  ScaledWeights(GradientLayout layout, Penalty penalty)
      : Weights(layout, penalty),
        weights_(layout.vectors * layout.features),
        seen_(penalty.l1 > 0 ? weights_.size() : 0) {}

  void margins(const Batch& batch, std::size_t vector, std::span<float> margins, int threads) const override {
    const std::uint64_t first = vector * layout_.features;
    const float* const v = weights_.data() + first;
    const double scale = global_.scale;
    if (seen_.empty()) {
      fill_margins(batch, margins, intercepts_[vector], threads, [=](std::uint32_t i) { return scale * v[i]; });
    } else {
      fill_margins(batch, margins, intercepts_[vector], threads,
                   [=, this](std::uint32_t i) { return current(first + i); });
    }
  }

  std::uint64_t step(const AnyStream& gradient, double rate, double rows) override {
    const double scale = global_.scale * (1 - rate * penalty_.l2);
    const double factor = rate / (rows * scale);
    const std::uint64_t moved = for_each_gradient(
        gradient, layout_,
        [&](std::uint64_t place, float g) {
          catch_up(place);
          weights_[place] -= static_cast<float>(factor * g);
        },
        [&](std::size_t vector, float g) { intercepts_[vector] -= static_cast<float>(rate / rows * g); });
    global_ = {scale, global_.shrinkage + rate * penalty_.l1 / scale};
    if (scale < kSmallestScale) fold();
    return moved;
  }

  void copy_to(std::span<float> weights) const override {
    for (std::uint64_t place = 0; place < weights_.size(); ++place) weights[place] = static_cast<float>(current(place));
  }

  std::vector<std::span<std::byte>> state() override {
    return {std::as_writable_bytes(std::span(weights_)), std::as_writable_bytes(std::span(intercepts_)),
            std::as_writable_bytes(std::span(seen_)), std::as_writable_bytes(std::span(&global_, 1))};
  }

 private:
  struct Global {
    double scale = 1;
    double shrinkage = 0;
  };

  double current(std::uint64_t place) const {
    if (seen_.empty()) return global_.scale * weights_[place];
    return global_.scale * soft_threshold<double>(weights_[place], global_.shrinkage - seen_[place]);
  }

  void catch_up(std::uint64_t place) {
    if (seen_.empty()) return;
    weights_[place] = static_cast<float>(soft_threshold<double>(weights_[place], global_.shrinkage - seen_[place]));
    seen_[place] = global_.shrinkage;
  }

  void fold() {
    for (std::uint64_t place = 0; place < weights_.size(); ++place)
      weights_[place] = static_cast<float>(current(place));
    std::fill(seen_.begin(), seen_.end(), 0.0);
    global_ = {};
  }

  Global global_;
  PoolVector<float> weights_;
  PoolVector<double> seen_;
};

}  // namespace

std::unique_ptr<Weights> make_scaled_weights(GradientLayout layout, Penalty penalty) {
  return std::make_unique<ScaledWeights>(layout, penalty);
}

}  // namespace tulle::linear
