// Weights with a learning rate each, by the gradients they have had: see weights.hpp.
//
// How it works. FTRL-Proximal (McMahan 2011): after t steps with gradients g₁ … g_t a weight is the minimum over w of
//   Σ gₛ·w + Σ σₛ/2·(w − wₛ)² + t·(l1·|w| + l2/2·w²),  where σ₁ + … + σ_t = √(Σ gₛ²)/η.
// Without penalties these are AdaGrad's steps. With them the penalties of all steps are weighed against the gradients
// of all steps. So the noise of single batches averages out, and a weight whose mean gradient is below l1 is 0 exactly.
// A weight remembers z = Σ (gₛ − σₛ·wₛ) and Σ gₛ², so one that gets no gradient need not be touched.
#include <cmath>

#include "linear/losses.hpp"
#include "linear/weights_common.hpp"

namespace tulle::linear {
namespace {

// Keeps the first step of a weight whose gradient is tiny from being as large as any other's.
constexpr double kFloor = 1e-8;

class AdagradWeights : public Weights {
 public:
  AdagradWeights(GradientLayout layout, Penalty penalty, double scale)
      : Weights(layout, penalty), scale_(scale), intercept_squares_(layout.vectors) {}

 protected:
  // What a rate is divided by.
  static double divisor(double squares) { return std::sqrt(squares) + kFloor; }
  void step_intercept(std::size_t vector, double g, double rate) {
    intercept_squares_[vector] += static_cast<float>(g * g);
    intercepts_[vector] -= static_cast<float>(scale_ * rate * g / divisor(intercept_squares_[vector]));
  }

  double scale_;
  PoolVector<float> intercept_squares_;
};

class UnpenalizedWeights final : public AdagradWeights {
 public:
  UnpenalizedWeights(GradientLayout layout, std::vector<float> feature_rates, double scale)
      : AdagradWeights(layout, {}, scale),
        feature_rates_(std::move(feature_rates)),
        weights_(layout.vectors * layout.features),
        squares_(weights_.size()) {}

  void margins(const Batch& batch, std::size_t vector, std::span<float> margins, int threads) const override {
    const float* const w = weights_.data() + vector * layout_.features;
    fill_margins(batch, margins, intercepts_[vector], threads, [=](std::uint32_t i) -> double { return w[i]; });
  }

  std::uint64_t step(const AnyStream& gradient, double rate, double rows) override {
    return for_each_gradient(
        gradient, layout_,
        [&](std::uint64_t place, float sum) {
          const double g = sum / rows,
                       of_feature = feature_rates_.empty() ? 1 : feature_rates_[place % layout_.features];
          squares_[place] += static_cast<float>(g * g);
          weights_[place] -= static_cast<float>(scale_ * of_feature * rate * g / divisor(squares_[place]));
        },
        [&](std::size_t vector, float sum) { step_intercept(vector, sum / rows, rate); });
  }

  void copy_to(std::span<float> weights) const override { std::ranges::copy(weights_, weights.begin()); }

  std::vector<std::span<std::byte>> state() override {
    return {std::as_writable_bytes(std::span(weights_)), std::as_writable_bytes(std::span(intercepts_)),
            std::as_writable_bytes(std::span(squares_)), std::as_writable_bytes(std::span(intercept_squares_))};
  }

 private:
  std::vector<float> feature_rates_;
  PoolVector<float> weights_, squares_;
};

class PenalizedWeights final : public AdagradWeights {
 public:
  PenalizedWeights(GradientLayout layout, Penalty penalty, const std::vector<float>& feature_rates, double scale)
      : AdagradWeights(layout, penalty, scale), pasts_(layout.vectors * layout.features) {
    for (std::size_t place = 0; place < pasts_.size(); ++place) {
      const double of_feature = feature_rates.empty() ? 1 : feature_rates[place % layout.features];
      pasts_[place].rate = static_cast<float>(scale * of_feature);
    }
  }

  void margins(const Batch& batch, std::size_t vector, std::span<float> margins, int threads) const override {
    const Past* const pasts = pasts_.data() + vector * layout_.features;
    fill_margins(batch, margins, intercepts_[vector], threads,
                 [=, this](std::uint32_t i) { return current(pasts[i]); });
  }

  std::uint64_t step(const AnyStream& gradient, double rate, double rows) override {
    global_.rate = rate;
    const std::uint64_t moved = for_each_gradient(
        gradient, layout_,
        [&](std::uint64_t place, float sum) {
          Past& past = pasts_[place];
          const double g = sum / rows, weight = current(past), before = divisor(past.squares);
          past.squares += static_cast<float>(g * g);
          past.z += g - (divisor(past.squares) - before) / (past.rate * rate) * weight;
        },
        [&](std::size_t vector, float sum) { step_intercept(vector, sum / rows, rate); });
    global_.steps += 1;
    return moved;
  }

  void copy_to(std::span<float> weights) const override {
    std::ranges::transform(pasts_, weights.begin(),
                           [this](const Past& past) { return static_cast<float>(current(past)); });
  }

  std::vector<std::span<std::byte>> state() override {
    return {std::as_writable_bytes(std::span(pasts_)), std::as_writable_bytes(std::span(intercepts_)),
            std::as_writable_bytes(std::span(intercept_squares_)), std::as_writable_bytes(std::span(&global_, 1))};
  }

 private:
  struct Global {
    double rate = 0;
    double steps = 0;
  };
  // What a weight remembers, in one place, because reading it costs a cache line.
  struct Past {
    double z = 0;
    float squares = 0;
    float rate = 1;  // a factor of the rate of all
  };

  double current(const Past& past) const {
    const double pulled = soft_threshold(past.z, global_.steps * penalty_.l1);
    if (pulled == 0) return 0;
    return -pulled / (divisor(past.squares) / (past.rate * global_.rate) + global_.steps * penalty_.l2);
  }

  Global global_;
  PoolVector<Past> pasts_;
};

}  // namespace

std::unique_ptr<Weights> make_adagrad_weights(GradientLayout layout, Penalty penalty, std::vector<float> feature_rates,
                                              double scale) {
  if (penalty.l1 > 0 || penalty.l2 > 0) {
    return std::make_unique<PenalizedWeights>(layout, penalty, feature_rates, scale);
  }
  return std::make_unique<UnpenalizedWeights>(layout, std::move(feature_rates), scale);
}

}  // namespace tulle::linear
