// Steps in Chrome's trace format: a process for each rank, a thread for each parameter, a slice for each stage.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

class Trace {
 public:
  /// Keeps what the last step of each parameter did.
  void add_step(const Synchronizer& synchronizer);
  /// The events of all steps that were added, as JSON objects with commas between them. A rank's time begins with its
  /// first step: clocks of hosts need not agree.
  std::string events_of(const Synchronizer& synchronizer, int rank) const;

 private:
  struct Kept {
    ParameterId parameter;
    ParameterStats stats;
  };
  std::vector<Kept> kept_;
};

/// The whole file, of what events_of() gave on every rank.
std::string trace_of(std::span<const Buffer> events_by_rank);

}  // namespace tulle::gradient
