// k-means on sparse rows of several ranks: Lloyd's iterations, with the sums of clusters added by an allreduce.
//
// Threads: any thread may call, one at a time on a channel; no other may use `data` until the call is over. The rank's
// work, and the callbacks, run on the thread that drives the engine: the progress thread where there is one, else the
// caller's. Collective; REQUIRES: equal options on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/linear/dataset.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

struct KmeansOptions {
  std::uint32_t clusters = 8;
  int iterations = 50;      ///< at most
  double tolerance = 1e-4;  ///< stop when the inertia falls by a smaller share
  std::string aggregation = "auto";
  std::uint64_t seed = 1;
  std::function<void(int iteration, double inertia)> on_iteration = {};  ///< on rank 0
};

struct KmeansResult {
  std::uint64_t features = 0;
  std::vector<float> centers;    ///< clusters × features, the same on all ranks
  std::vector<double> sizes;     ///< rows of each cluster
  std::vector<double> inertias;  ///< by iteration: the sum of squared distances of rows to the nearest center
};

/// Starts from rows that are far apart (k-means++). A cluster that loses all of its rows keeps its center.
/// Makes a pass over the data for each cluster, then one an iteration; a pass costs non-zeros × clusters. Takes about
/// 8 × clusters × features bytes. Throws bad_input where there are more clusters than rows.
KmeansResult kmeans(Communicator& communicator, Dataset& data, const KmeansOptions& options);
/// The same inside a program. `data` must outlive the task.
Task<KmeansResult> kmeans_task(Communicator communicator, Dataset& data, KmeansOptions options);

}  // namespace tulle::linear
#pragma GCC visibility pop
