// powersgd: a matrix as the product of two thin ones, which are summed one after the other. Vogels et al. 2019.
//
// How it works. M is this rank's accumulator and *right* what the last step ended with (*warm start*). The first sum is
// of left = M·right; its columns are made orthonormal. The second is of right = Mᵀ·left, divided by P. left·rightᵀ is
// then the best that r columns can say about the mean of all M, the same bits on every rank, and each rank subtracts it
// from its own M.
//
// The second sum starts by itself when the first is over, on whichever thread drives the engine: a rank that finishes
// another parameter first still takes part in it.
//
//   data   two dense sums of r·rows and r·columns values
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gradient/low_rank.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle::gradient {

class LowRankExchange {
 public:
  LowRankExchange(const Communicator& channel, MatrixShape shape, std::size_t rank, std::uint64_t seed);

  /// Starts the sums. An empty matrix contributes nothing. The matrix must stay as it is until finish() is over.
  void start(std::span<const float> matrix, const CallOptions& options);
  /// Ends with both sums.
  Task<> finish();
  /// Makes some progress. True when finish() would not wait.
  bool test();
  /// Ends what is in flight and drops what it gives. REQUIRES: its communicator is broken.
  Task<> abandon();
  /// From now on sums are made there, and what auto learned starts anew. REQUIRES: nothing is in flight.
  void move_to(const Communicator& channel);

  /// product = left·rightᵀ, the mean over ranks. REQUIRES: finished.
  void expand_to(std::span<float> product) const { expand(left_, right_, shape_, product); }
  void subtract_from(std::span<float> matrix) const { subtract_expanded(left_, right_, shape_, matrix); }

  PoolVector<float>& right() { return right_; }
  const Counts& counts() const { return counts_; }

 private:
  Request<Outcome> sum(std::span<const float> factor, AlgorithmState& state);
  void count(const Counts& counts);
  Request<void> start_turn();
  Task<> turn(std::shared_ptr<std::optional<std::optional<Error>>> result);

  Communicator channel_;
  MatrixShape shape_;
  std::uint64_t seed_;
  PoolVector<float> left_, right_;
  std::span<const float> matrix_;
  CallOptions options_;
  Counts counts_;
  AlgorithmState left_algorithm_, right_algorithm_;
  Request<Outcome> request_;  ///< the turn's until that is over; goes before the factors, which it uses
  Request<void> turn_;        ///< ends the first sum and starts the second; goes first
};

}  // namespace tulle::gradient
