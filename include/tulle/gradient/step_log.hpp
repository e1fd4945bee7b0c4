// What the steps of a training did, as files: lines of JSON that `tulle watch` and `tulle report` read, and a trace
// that Chrome (chrome://tracing) and Perfetto show.
//
//   auto log = tulle::gradient::StepLog::open(synchronizer, {.lines = "steps.jsonl", .trace = "trace.json"});
//   for (...) {
//     ...                   // start all parameters, end_step(), finish all
//     log.add_step({.loss = loss});
//   }
//   log.close();
//
// docs/gradient.md lists the fields of a line. Threads: as the synchronizer's. Programs (coroutines) use the functions
// that begin with `await`, which give tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tulle/gradient/synchronizer.hpp"

#pragma GCC visibility push(default)
namespace tulle::gradient {

/// Equal on all ranks.
struct StepLogOptions {
  std::string lines = {};           ///< a file that rank 0 appends a line to for each step; empty: none
  std::string trace = {};           ///< a file that rank 0 writes in close(), about all ranks; empty: none
  bool parameters = true;           ///< lines say what each parameter did on rank 0, too
  std::uint64_t trace_steps = 100;  ///< the first so many are traced: about 150 bytes a stage
};

/// What the synchronizer does not know about a step.
struct StepNote {
  std::optional<double> seconds;  ///< how long it took; unset: the time since the step before was added
  std::optional<double> loss;
};

class StepLog {
 public:
  /// The synchronizer must outlive it; one log at a time. Collective: where rank 0 cannot open a file all throw system
  /// naming it.
  static StepLog open(Synchronizer& synchronizer, const StepLogOptions& options);
  static Task<StepLog> await_open(Synchronizer& synchronizer, StepLogOptions options);
  StepLog(StepLog&&) noexcept;
  StepLog& operator=(StepLog&&) noexcept;
  ~StepLog();

  /// Adds the step whose parameters have all been finished. Collective: a few numbers of each rank travel. Throws
  /// system, on all ranks, where the line cannot be written.
  void add_step(const StepNote& note = {});
  Task<> await_add_step(StepNote note = {});

  /// Writes the trace. Collective. A log that is dropped without it leaves none.
  void close();
  Task<> await_close();

 private:
  struct State;
  explicit StepLog(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tulle::gradient
#pragma GCC visibility pop
