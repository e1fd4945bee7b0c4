// Measures the constants of a profile: α and β between ranks, γ of each kernel.
//
// Threads: as collectives, any thread may call, one at a time on a channel. The measuring, and `on_progress`, run on
// the thread that drives the engine: the progress thread where there is one, else whoever waits.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "tulle/comm/communicator.hpp"
#include "tulle/comm/profile_file.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct ProbeOptions {
  std::uint64_t largest_bytes = std::uint64_t{4} << 20;  ///< of a message
  int rounds = 5;                                        ///< times that everything is measured, 1 to 50
  bool kernels = true;                                   ///< else the γ of the communicator's profile stay
  double kernel_seconds = 0.02;                          ///< that a kernel runs in a round
  std::uint64_t kernel_bytes = std::uint64_t{16} << 20;  ///< of a kernel's operands: more than a core's caches hold
  /// Called on every rank that sets it, when `done` of `total` steps are over and `what` comes next.
  std::function<void(std::uint64_t done, std::uint64_t total, std::string_view what)> on_progress = {};
};

/// What the messages and the kernels of calls on this communicator take; equal on all ranks. Collective; the
/// communicator's profile stays as it is.
///
/// α and β are of messages through the engine and the transport, as collectives send them, with all ranks sending at
/// once: in a collective no port and no core is idle. Messages inside a node and between nodes are measured apart. γ
/// are of the library's kernels, with all ranks computing at once, on operands that do not fit the caches. `also` holds
/// what one pair alone and what kernels on small operands take. Fields that say where and when are the caller's to
/// fill. What cannot be measured (P = 1, no two ranks on a node) stays as the communicator's profile has it.
/// docs/tuning.md says how and why. Throws bad_input for options out of bounds. Takes seconds, and a few times
/// `kernel_bytes` of memory on each rank; nothing else should run meanwhile. REQUIRES: equal options on all ranks.
MeasuredProfile probe(Communicator& communicator, const ProbeOptions& options = {});
Request<MeasuredProfile> iprobe(Communicator& communicator, const ProbeOptions& options = {});

}  // namespace tulle
#pragma GCC visibility pop
