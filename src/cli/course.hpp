// What contenders race over: the inputs of the local ranks, one lap on them, and the check of its result.
#pragma once

#include <memory>
#include <string>

#include "cli/race.hpp"

namespace tulle::cli {

class Course {
 public:
  virtual ~Course() = default;
  /// Of one rank's input, or of what it is to deliver.
  virtual std::uint64_t nnz() const = 0;
  virtual Lap run(const RaceRow& row, const CallOptions& options, std::span<AlgorithmState> states) = 0;
  /// What is wrong with the values of a lap's result, as far as this thread can tell; empty where nothing is.
  /// Collective.
  virtual std::string fault_of(const Lap& lap) = 0;
};

/// `density` of `dimension` values, rounded.
std::uint64_t share_of(std::uint64_t dimension, double density);

/// Sparse streams, and dense ones for dense rows; results are compared with the serial sum.
std::unique_ptr<Course> make_stream_course(Track& track, const RaceSpec& spec, double density);
/// Dense gradients of which `density` is to be delivered; what is delivered and what stays must be what was there.
std::unique_ptr<Course> make_accumulator_course(Track& track, const RaceSpec& spec, double density);

}  // namespace tulle::cli
