// k-means on sparse rows of several ranks: Lloyd's iterations, with the sums of clusters added by an allreduce.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/linear/dataset.hpp"
#include "tulle/linear/waiting.hpp"

namespace tulle::linear {

struct KmeansOptions {
  std::uint32_t clusters = 8;
  int iterations = 50;      ///< at most
  double tolerance = 1e-4;  ///< stop when the inertia falls by a smaller share
  std::string aggregation = "auto";
  std::uint64_t seed = 1;
  std::function<void(int iteration, double inertia)> on_iteration;  ///< on rank 0
};

struct KmeansResult {
  std::uint64_t features = 0;
  std::vector<float> centers;    ///< clusters × features, the same on all ranks
  std::vector<double> sizes;     ///< rows of each cluster
  std::vector<double> inertias;  ///< by iteration: the sum of squared distances of rows to the nearest center
};

/// Starts from rows that are far apart (k-means++). A cluster that loses all of its rows keeps its center.
/// A pass over the data for each cluster, then one an iteration; a pass costs non-zeros × clusters.
KmeansResult kmeans(Communicator& communicator, Dataset& data, const KmeansOptions& options);
Task<KmeansResult> kmeans_task(Communicator communicator, Waiting waiting, Dataset& data, KmeansOptions options);

}  // namespace tulle::linear
