// Ranks that share a thread, as in simulation, need not each hold what is equal on all of them.
#pragma once

#include <memory>

namespace tulle::linear {

/// For all simulated ranks that run SGD together, once: the weights, the array in which a gradient is summed, and the
/// sums of dense rows, whose messages then carry lengths instead of data. So P ranks need about the memory of one.
/// Times and bytes are those of ranks that share nothing; weights are, to the rounding of sums.
class Replicas;

/// For one call of train_task() on every rank of a world.
std::shared_ptr<Replicas> make_replicas();

}  // namespace tulle::linear
