// What the ranks of one thread hold in common. A rank that shares nothing has one to itself.
//
// How it works. Without staleness nobody ends step t + 1 before everybody has applied step t. So weights that the first
// rank moves for all are never ahead of what another rank is to see, and one sum at a time has to be kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "linear/gradient_accumulator.hpp"
#include "linear/weights.hpp"
#include "tulle/linear/replicas.hpp"

namespace tulle::linear {

/// A model and what its penalty is.
struct Snapshot {
  LinearModel model;
  double penalty = 0;
};

class Replicas {
 public:
  /// Made by the rank that comes first.
  GradientAccumulator& gradient(std::uint64_t dimension);
  Weights& weights(const std::function<std::unique_ptr<Weights>()>& make);

  /// What ranks call step number `step`, counted from 0: the first moves the weights. Gives how many were moved.
  std::uint64_t apply(std::uint64_t step, const AnyStream& sum, double rate, double rows);
  /// The weights are those after `steps` steps, from a checkpoint.
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  /// Of the weights as they are; kept until they move.
  std::shared_ptr<const Snapshot> snapshot(const std::function<Snapshot()>& make);

  /// Sums without messages, in rank order: everyone contributes to `step` before anyone takes its sum.
  void contribute(int rank, int ranks, AnyStream gradient);
  const AnyStream& sum(std::uint64_t step);

 private:
  std::unique_ptr<GradientAccumulator> gradient_;
  std::unique_ptr<Weights> weights_;
  std::uint64_t steps_ = 0, moved_ = 0;
  std::shared_ptr<const Snapshot> snapshot_;
  PoolVector<AnyStream> contributions_;
  AnyStream sum_;
  std::uint64_t summed_steps_ = 0;
};

}  // namespace tulle::linear
