// How a rank waits for its collectives.
#pragma once

#include <exception>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/comm/task.hpp"

namespace tulle::linear {

/// Blocking calls are a little faster, and MPI's own allreduce much. In simulation many ranks share a thread, and none
/// may block: they await.
enum class Waiting { blocks, awaits };

/// Runs a task that blocks and never waits for an engine. Throws what it throws.
template <class T>
T run_blocking(Task<T> task) {
  ReadyQueue queue;
  task.start(queue);
  queue.run();
  return task.take();
}

/// Collective. Where a rank gives an error, all throw what the lowest such rank gives: for failures outside of
/// collectives, such as a bad file, of which the others would not hear.
Task<> fail_together(Communicator communicator, Waiting waiting, std::exception_ptr error);

/// Collective: a few numbers summed over ranks.
Task<std::vector<double>> sum_over_ranks(Communicator communicator, Waiting waiting, std::vector<double> values);
/// Collective: the largest of a number that each rank has.
Task<double> most_over_ranks(Communicator communicator, Waiting waiting, double value);

}  // namespace tulle::linear
