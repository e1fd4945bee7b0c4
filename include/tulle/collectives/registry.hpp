// The registry: every algorithm is a row of data, and everything that lists algorithms reads the rows.
//
// Threads: the rows never change, so that any thread may read them; the functions keep no state. References to rows and
// their names live as long as the program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tulle/collectives/call.hpp"
#include "tulle/collectives/cost_input.hpp"
#include "tulle/collectives/state.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/comm/signature.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

enum class Exactness {
  exact,                ///< the sum, or with a value coding what that coding promises
  lossy_with_residual,  ///< some of the sum; the rest stays in the accumulators
};
std::string_view to_string(Exactness exactness);

/// What a row needs beyond messages.
enum class Needs { messages, native_allreduce };

enum class Takes { stream, accumulator };

/// A row. cost_seconds() may be called by anyone; run() is for collectives, which check the call first, and its
/// arguments must outlive the task.
struct Algorithm {
  std::string_view name;
  OperationKind kind;
  std::string_view summary;
  std::string_view paper;
  Exactness exactness;
  Needs needs;
  Takes takes;
  Layout input;       ///< the layout it works on; a stream of the other one is converted first
  bool codes_values;  ///< can send values in fewer bits
  bool dense_result;  ///< makes a dense vector of N values, whatever the input, and so refuses 2^32 of them or more
  double (*cost_seconds)(const CostInput&);  ///< infinite where the row refuses the call
  Task<Outcome> (*run)(Operation&, Payload&, const CallOptions&, AlgorithmState*);
};

/// All rows.
std::span<const Algorithm> registry();
/// Throws bad_input listing the rows of that kind.
const Algorithm& find_algorithm(OperationKind kind, std::string_view name);
/// The row's number in fingerprints: its place in the registry, from 1. REQUIRES: a row of registry(), no copy.
std::uint8_t algorithm_number(const Algorithm& algorithm);

/// What a row must be able to do.
struct RowNeeds {
  OperationKind kind = OperationKind::allreduce;
  Takes takes = Takes::stream;
  bool coded_values = false;
  std::optional<Layout> input = {};  ///< the layout that it works on; unset: either
};

/// Whether auto may give a call to the row: it does what is needed, by messages alone.
bool can_serve(const Algorithm& algorithm, const RowNeeds& needs);

/// The cheapest row that can serve, costs corrected by what earlier calls took. Depends on its arguments only,
/// so ranks agree. Throws unsupported where there is none. Evaluates the cost of every row of the kind.
const Algorithm& choose(const RowNeeds& needs, const CostInput& input, const Experience& experience = {});

}  // namespace tulle
#pragma GCC visibility pop
