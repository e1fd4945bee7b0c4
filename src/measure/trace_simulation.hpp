// Training steps of a traced network in virtual time: the pipeline of each recipe on simulated ranks.
//
// How it works. Every rank has a *device* that computes, and beside it the processor that exchanges. In a step the
// device runs forward and then back; after each parameter's share of back-propagation it *packs* (accumulates and
// selects), and the synchronizer starts the exchange, which goes on while the device works on the parameter before.
// Then updates are taken from the first parameter on, and the device *unpacks* each. What a step takes beyond what its
// device was busy is *exposed*. The exchanges are the library's own, message by message; what the device does is not
// computed but counted, by items and the γ of the trace's machine. docs/simulation.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.hpp"
#include "measure/simulation.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/gradient/training_trace.hpp"

namespace tulle::measure {

struct TraceSpec {
  gradient::TrainingTrace trace;
  std::vector<std::string> recipes;  ///< texts that parse_recipe() takes; `dense` is put first where it is missing
  SimOptions options;                ///< the γ of its profile are those of the trace's machine
  DataRule rule;                     ///< real gradients are drawn; phantoms have sizes alone
  /// Ranks that are no workers but hold the model, in front of the others: 3LC's architecture. 0: collectives.
  int servers = 0;
  int warmup = 2;        ///< steps before the measured ones, in which rows learn
  int steps = 2;         ///< whose mean is measured
  bool computes = true;  ///< false: the device takes no time but that of the trace
};

/// A recipe on the network. Times are of a training step, local steps shared out.
struct TraceRow {
  std::string recipe;
  std::uint64_t every = 1;     ///< local steps between two exchanges
  double seconds = 0;          ///< of the slowest rank
  double compute_seconds = 0;  ///< forward and back
  double pack_seconds = 0;     ///< accumulating and selecting
  double unpack_seconds = 0;   ///< adding what came to the weights
  double exposed_seconds = 0;  ///< the device waits: mean over ranks
  double bytes_sent = 0;       ///< of the rank that sends most
  double bytes_received = 0;   ///< of indices and values: of the rank that receives most
  double density = 0;          ///< of the update
  double speedup = 1;          ///< over dense
  bool is_phantom = false;
};

/// Rows in the order of the recipes, dense first where it was not asked for. The same numbers on every machine. Throws
/// bad_input for a text that is no recipe, and unsupported for phantoms of a server.
std::vector<TraceRow> simulate_trace(const TraceSpec& spec, Progress* progress = nullptr);

/// Rows of one trace.
std::uint64_t rows_of(const TraceSpec& spec);

}  // namespace tulle::measure
