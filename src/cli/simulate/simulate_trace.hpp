// tulle simulate --trace: training steps of a traced network, a table of recipes for each number of ranks.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "base/json_lines.hpp"
#include "measure/trace_simulation.hpp"

namespace tulle::cli {

struct TraceFlags {
  std::optional<gradient::TrainingTrace> trace;
  std::vector<std::string> recipes;
  int servers = 0;
  int steps = 2;
  bool overlap = true;
  bool needs_trace = false;  ///< a flag was given that says something about traces alone
};

/// Everything that a run needs to know.
struct TraceRun {
  const TraceFlags& flags;
  std::vector<int> ranks;
  Network network;
  measure::DataRule rule;
  std::uint64_t seed = 1;
  bool computes = true;
};

/// REQUIRES: the flags of rows and of networks were added before; those of rows cannot be given with --trace.
void add_trace_flags(CLI::App& command, TraceFlags& flags);
/// Throws CLI::ValidationError where a flag of traces was given without one.
void require_trace(const TraceFlags& flags);
int simulate_traces(const TraceRun& run, JsonLines* json);

}  // namespace tulle::cli
