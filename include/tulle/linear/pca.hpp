// Principal components of sparse rows of several ranks, by power iteration.
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

struct PcaOptions {
  std::uint32_t components = 2;
  int iterations = 100;     ///< at most
  double tolerance = 1e-5;  ///< stop when no variance changes by a larger share
  bool is_centered = true;  ///< else the mean of the rows is not taken away
  std::string aggregation = "auto";
  std::uint64_t seed = 1;
  std::function<void(int iteration, const std::vector<double>& variances)> on_iteration = {};  ///< on rank 0
};

struct PcaResult {
  std::uint64_t features = 0;
  std::vector<float> components;  ///< components × features, orthonormal, the same on all ranks
  std::vector<double> variances;  ///< along each, decreasing
  int iterations = 0;
};

/// Rows stay sparse: the mean is taken away in the products, not in the data. An iteration costs non-zeros ×
/// components, and components² × features for keeping them orthogonal. Throws bad_input where there are more components
/// than features.
PcaResult pca(Communicator& communicator, Dataset& data, const PcaOptions& options);
/// The same inside a program. `data` must outlive the task.
Task<PcaResult> pca_task(Communicator communicator, Dataset& data, PcaOptions options);

}  // namespace tulle::linear
#pragma GCC visibility pop
