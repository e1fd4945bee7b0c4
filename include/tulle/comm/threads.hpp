// Ranks as threads of one process: for use without MPI, for examples, and for the thread sanitizer.
#pragma once

#include <functional>

#include "tulle/comm/communicator.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Runs `body` on `ranks` threads, each with its communicator, and joins them. Throws the lowest failing rank's error.
void run_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace tulle
#pragma GCC visibility pop
