// Ranks that share a thread, as in simulation, need not each hold what is equal on all of them.
//
// Threads: there is no lock in it. All ranks that share one run on the same thread.
#pragma once

#include <memory>

#pragma GCC visibility push(default)
namespace tulle::linear {

/// Holds, once for all simulated ranks that run SGD together: the weights, the array in which a gradient is summed, and
/// the sums of dense rows, whose messages then carry lengths instead of data. So P ranks need about the memory of one.
/// Times and bytes are those of ranks that share nothing; weights are, to the rounding of sums.
class Replicas;

/// Makes one for one call of train_task() on every rank of a simulation. REQUIRES: it is not used for another call.
std::shared_ptr<Replicas> make_replicas();

}  // namespace tulle::linear
#pragma GCC visibility pop
