// What a training's exchanges cost, on one screen.
#pragma once

#include <cstdint>
#include <string>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// Sums over all parameters and steps of this rank.
struct Totals {
  std::uint64_t finished = 0;  ///< exchanges of parameters
  std::uint64_t steps = 0;     ///< that parameters were exchanged in
  std::uint64_t last_step = 0;
  double values = 0, delivered = 0;
  double bytes_sent = 0;
  double accumulate_seconds = 0, select_seconds = 0, encode_seconds = 0, decode_seconds = 0;
  double wait_seconds = 0, mask_seconds = 0, apply_seconds = 0;

  void add(const Parameter& parameter, const ParameterStats& stats);
};

/// Collective. `whole_step_seconds` are what dense exchanges of all parameters take by the model. What it is given must
/// outlive the task.
Task<std::string> report_of(Communicator& control, const Recipe& recipe, const Totals& totals,
                            double whole_step_seconds);

}  // namespace tulle::gradient
