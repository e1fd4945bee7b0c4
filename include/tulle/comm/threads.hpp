// Ranks as threads of one process: for use without MPI, for examples, and for the thread sanitizer.
#pragma once

#include <functional>

#include "tulle/comm/communicator.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Runs `body` on `ranks` threads, each with its communicator, and joins them.
///
/// Where `body` throws on one rank, the others hear of it at once: what they wait for, and what they start later, fails
/// with peer_failed and the text of what was thrown. Where it returns early, those that wait for that rank fail so.
/// Then this throws what the lowest rank threw whose error is not merely that another failed (peer_failed, broken);
/// where all errors are, the lowest rank's. Throws bad_input where `ranks` is below 1.
void run_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace tulle
#pragma GCC visibility pop
