// Weights with a learning rate each, by the gradients they have had: see weights.hpp.
#include "linear/losses.hpp"
#include "linear/weights_common.hpp"

namespace tulle::linear {
namespace {

// Keeps the first step of a weight whose gradient is tiny from being as large as any other's.
constexpr double kFloor = 1e-8;

class AdagradWeights final : public Weights {
 public:
  AdagradWeights(GradientLayout layout, Penalty penalty)
      : Weights(layout, penalty),
        squares_(weights_.size()),
        intercept_squares_(layout.vectors),
        seen_(penalty.l1 > 0 || penalty.l2 > 0 ? weights_.size() : 0) {}

  void margins(const Batch& batch, std::size_t vector, std::span<float> margins, int threads) const override {
    const std::uint64_t first = vector * layout_.features;
    const float* const w = weights_.data() + first;
    if (seen_.empty()) {
      fill_margins(batch, margins, intercepts_[vector], threads, [=](std::uint32_t i) -> double { return w[i]; });
    } else {
      fill_margins(batch, margins, intercepts_[vector], threads,
                   [=, this](std::uint32_t i) { return current(first + i); });
    }
  }

  void step(const AnyStream& gradient, double rate, double rows) override {
    global_.rate = rate;
    for_each_gradient(
        gradient, layout_,
        [&](std::uint64_t place, float sum) {
          const double g = sum / rows;
          const double before = current(place);
          squares_[place] += static_cast<float>(g * g);
          weights_[place] = static_cast<float>(shrunk(before - rate_of(squares_[place]) * g, squares_[place], 1));
          if (!seen_.empty()) seen_[place] = global_.steps + 1;
        },
        [&](std::size_t vector, float sum) {
          const double g = sum / rows;
          intercept_squares_[vector] += static_cast<float>(g * g);
          intercepts_[vector] -= static_cast<float>(rate_of(intercept_squares_[vector]) * g);
        });
    global_.steps += 1;
  }

  void copy_to(std::span<float> weights) const override {
    for (std::uint64_t place = 0; place < weights_.size(); ++place) weights[place] = static_cast<float>(current(place));
  }

  std::vector<std::span<std::byte>> state() override {
    return {std::as_writable_bytes(std::span(weights_)),           std::as_writable_bytes(std::span(intercepts_)),
            std::as_writable_bytes(std::span(squares_)),           std::as_writable_bytes(std::span(seen_)),
            std::as_writable_bytes(std::span(intercept_squares_)), std::as_writable_bytes(std::span(&global_, 1))};
  }

 private:
  struct Global {
    double rate = 0;
    std::uint64_t steps = 0;
  };

  double rate_of(double squares) const { return global_.rate / (std::sqrt(squares) + kFloor); }

  double current(std::uint64_t place) const {
    if (seen_.empty() || weights_[place] == 0) return weights_[place];
    return shrunk(weights_[place], squares_[place], global_.steps - seen_[place]);
  }

  // What `steps` steps without gradient leave of `weight`: |w|·q^m − η·l1·(1 + q + … + q^(m−1)), where q = 1 − η·l2.
  double shrunk(double weight, double squares, std::uint64_t steps) const {
    if (seen_.empty() || steps == 0) return weight;
    const double rate = rate_of(squares), keep = std::max(0.0, 1 - rate * penalty_.l2);
    const auto count = static_cast<double>(steps);
    const double power = penalty_.l2 == 0 ? 1 : std::pow(keep, count);
    const double geometric = power == 1 ? count : (1 - power) / (1 - keep);
    return soft_threshold(weight * power, rate * penalty_.l1 * geometric);
  }

  Global global_;
  PoolVector<float> squares_;
  PoolVector<float> intercept_squares_;
  PoolVector<std::uint64_t> seen_;
};

}  // namespace

std::unique_ptr<Weights> make_adagrad_weights(GradientLayout layout, Penalty penalty) {
  return std::make_unique<AdagradWeights>(layout, penalty);
}

}  // namespace tulle::linear
