// Weights with a learning rate each, by the gradients they have had: see weights.hpp.
#include "linear/losses.hpp"
#include "linear/weights_common.hpp"

namespace tulle::linear {
namespace {

// Keeps the first step of a weight whose gradient is tiny from being as large as any other's.
constexpr double kFloor = 1e-8;

// ln(1 − d), cheaply where d is as small as it mostly is.
double log_of_rest(double d) { return d < 1e-3 ? -d * (1 + d * (1.0 / 2 + d / 3)) : std::log1p(-d); }

// 1 − e^(−x), likewise; std::expm1 takes several times as long.
double lost_share(double x) {
  return x < 0.05 ? x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4))) : 1 - std::exp(static_cast<float>(-x));
}

class AdagradWeights final : public Weights {
 public:
  AdagradWeights(GradientLayout layout, Penalty penalty, std::uint64_t fold_steps)
      : Weights(layout, penalty),
        is_penalized_(penalty.l1 > 0 || penalty.l2 > 0),
        fold_steps_(fold_steps),
        pasts_(weights_.size()),
        intercept_squares_(layout.vectors) {}

  void margins(const Batch& batch, std::size_t vector, std::span<float> margins, int threads) const override {
    const std::uint64_t first = vector * layout_.features;
    const float* const w = weights_.data() + first;
    if (!is_penalized_) {
      fill_margins(batch, margins, intercepts_[vector], threads, [=](std::uint32_t i) -> double { return w[i]; });
    } else {
      fill_margins(batch, margins, intercepts_[vector], threads,
                   [=, this](std::uint32_t i) { return current(first + i); });
    }
  }

  std::uint64_t step(const AnyStream& gradient, double rate, double rows) override {
    global_.rate = rate;
    const std::uint64_t moved = for_each_gradient(
        gradient, layout_,
        [&](std::uint64_t place, float sum) {
          const double g = sum / rows;
          const double before = current(place);
          Past& past = pasts_[place];
          past = {past.squares + static_cast<float>(g * g), static_cast<std::uint32_t>(global_.steps + 1)};
          weights_[place] = static_cast<float>(shrunk(before - rate_of(past.squares) * g, past.squares, 1));
        },
        [&](std::size_t vector, float sum) {
          const double g = sum / rows;
          intercept_squares_[vector] += static_cast<float>(g * g);
          intercepts_[vector] -= static_cast<float>(rate_of(intercept_squares_[vector]) * g);
        });
    global_.steps += 1;
    if (is_penalized_ && global_.steps % fold_steps_ == 0) fold();
    return moved;
  }

  void copy_to(std::span<float> weights) const override {
    for (std::uint64_t place = 0; place < weights_.size(); ++place) weights[place] = static_cast<float>(current(place));
  }

  std::vector<std::span<std::byte>> state() override {
    return {std::as_writable_bytes(std::span(weights_)), std::as_writable_bytes(std::span(intercepts_)),
            std::as_writable_bytes(std::span(pasts_)), std::as_writable_bytes(std::span(intercept_squares_)),
            std::as_writable_bytes(std::span(&global_, 1))};
  }

 private:
  struct Global {
    double rate = 0;
    std::uint64_t steps = 0;
  };
  // What a weight remembers, in one place, because reading it costs a cache line.
  struct Past {
    float squares = 0;
    std::uint32_t seen = 0;  // the step it was last written after, modulo 2^32
  };

  double rate_of(double squares) const { return global_.rate / (std::sqrt(squares) + kFloor); }

  double current(std::uint64_t place) const {
    if (!is_penalized_ || weights_[place] == 0) return weights_[place];
    const Past& past = pasts_[place];
    return shrunk(weights_[place], past.squares, static_cast<std::uint32_t>(global_.steps) - past.seen);
  }

  // What m steps without gradient leave of `weight`: |w|·q^m − η·l1·(1 + q + … + q^(m−1)), where q = 1 − η·l2.
  double shrunk(double weight, double squares, std::uint32_t steps) const {
    if (!is_penalized_ || steps == 0) return weight;
    const double rate = rate_of(squares), decay = std::min(1.0, rate * penalty_.l2);
    if (decay == 0) return soft_threshold(weight, rate * penalty_.l1 * steps);
    const double lost = lost_share(-log_of_rest(decay) * steps);  // 1 − q^m
    return soft_threshold(weight * (1 - lost), rate * penalty_.l1 * lost / decay);
  }

  // Before a weight that gets no gradient has waited for more steps than `seen` can tell.
  void fold() {
    copy_to(weights_);
    for (Past& past : pasts_) past.seen = static_cast<std::uint32_t>(global_.steps);
  }

  bool is_penalized_;
  std::uint64_t fold_steps_;
  Global global_;
  PoolVector<Past> pasts_;
  PoolVector<float> intercept_squares_;
};

}  // namespace

std::unique_ptr<Weights> make_adagrad_weights(GradientLayout layout, Penalty penalty, std::uint64_t fold_steps) {
  return std::make_unique<AdagradWeights>(layout, penalty, fold_steps);
}

}  // namespace tulle::linear
