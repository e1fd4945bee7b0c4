// What candidates are measured on: the inputs of the local ranks, one call on them, and the check of its result.
#pragma once

#include <memory>
#include <string>

#include "measure/comparison.hpp"

namespace tulle::measure {

class Workload {
 public:
  virtual ~Workload() = default;
  /// Of one rank's input, or of what it is to deliver.
  virtual std::uint64_t nnz() const = 0;
  virtual TimedCall run(const Row& row, const CallOptions& options, std::span<AlgorithmState> states) = 0;
  /// What is wrong with the values of a call's result, as far as this thread can tell; empty where nothing is.
  /// Collective.
  virtual std::string fault_of(const TimedCall& call) = 0;
  /// The row will not be called again: what is kept for it may go.
  virtual void end(const Row& row) { (void)row; }
};

/// `density` of `dimension` values, rounded.
std::uint64_t share_of(std::uint64_t dimension, double density);

/// Sparse streams, and dense ones for dense rows; results are compared with the serial sum.
std::unique_ptr<Workload> make_stream_workload(LocalRanks& ranks, const ComparisonSpec& spec, double density);
/// Dense gradients of which `density` is to be delivered, new ones in each of a row's calls, heavy-tailed and partly
/// shared between ranks, over accumulators that keep what was not delivered; what is delivered and what stays must be
/// what was there. Keeps a vector for each row that is called and not ended.
std::unique_ptr<Workload> make_accumulator_workload(LocalRanks& ranks, const ComparisonSpec& spec, double density);

}  // namespace tulle::measure
