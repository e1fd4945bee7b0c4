#include "linear/replicas.hpp"

#include "tulle/stream/reduction.hpp"

namespace tulle::linear {

std::shared_ptr<Replicas> make_replicas() { return std::make_shared<Replicas>(); }

GradientAccumulator& Replicas::gradient(std::uint64_t dimension) {
  if (!gradient_) gradient_ = std::make_unique<GradientAccumulator>(dimension);
  return *gradient_;
}

Weights& Replicas::weights(const std::function<std::unique_ptr<Weights>()>& make) {
  if (!weights_) weights_ = make();
  return *weights_;
}

std::uint64_t Replicas::apply(std::uint64_t step, const AnyStream& sum, double rate, double rows) {
  if (step < steps_) return moved_;
  snapshot_ = nullptr;
  moved_ = weights_->step(sum, rate, rows);
  steps_ = step + 1;
  return moved_;
}

std::shared_ptr<const Snapshot> Replicas::snapshot(const std::function<Snapshot()>& make) {
  if (!snapshot_) snapshot_ = std::make_shared<const Snapshot>(make());
  return snapshot_;
}

void Replicas::contribute(int rank, int ranks, AnyStream gradient) {
  contributions_.resize(static_cast<std::size_t>(ranks));
  contributions_[static_cast<std::size_t>(rank)] = std::move(gradient);
}

const AnyStream& Replicas::sum(std::uint64_t step) {
  if (summed_steps_ != step + 1) sum_ = reduce_many(contributions_, Op::sum());
  summed_steps_ = step + 1;
  return sum_;
}

}  // namespace tulle::linear
