// The library's kernels on data of their own, for the probe to time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tulle {

/// Does the work once and gives the items that the cost model counts for it.
using KernelRun = std::function<double()>;

struct ProbeKernel {
  std::string constant;  ///< of Profile
  /// Makes operands of about `bytes` in all, as a rank of `ranks` meets them.
  std::function<KernelRun(std::uint64_t bytes, int ranks)> prepare;
};

/// One for each γ of Profile: of the index codings those that the codec's registry has.
std::vector<ProbeKernel> probe_kernels();

/// Seconds of an item: runs once to warm up, then until `seconds` have passed on `clock`.
double seconds_per_item(const KernelRun& run, double seconds, const std::function<double()>& clock);

}  // namespace tulle
