#include "tune/probe_kernels.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tulle/comm/profile_file.hpp"

namespace tulle {
namespace {

TEST(ProbeKernels, cover_every_gamma_of_a_profile_once) {
  std::multiset<std::string_view> expected, covered;
  for (const ProfileConstant& constant : profile_constants()) {
    if (constant.name.starts_with("gamma")) expected.insert(constant.name);
  }
  const std::vector<ProbeKernel> kernels = probe_kernels();
  for (const ProbeKernel& kernel : kernels) covered.insert(kernel.constant);
  EXPECT_EQ(covered, expected);
}

TEST(ProbeKernels, count_the_items_of_about_the_bytes_asked_for) {
  constexpr std::uint64_t kBytes = 1 << 20;
  for (const ProbeKernel& kernel : probe_kernels()) {
    const double items = kernel.prepare(kBytes, 4)();
    EXPECT_GE(items, kBytes / 16.0) << kernel.constant;  // of 4 to 8 bytes each, and some of it for the result
    EXPECT_LE(items, kBytes / 4.0) << kernel.constant;
  }
}

TEST(SecondsPerItem, is_elapsed_time_over_items_of_all_runs_but_the_first) {
  double now = 0;
  int runs = 0;
  const KernelRun run = [&] {
    now += runs++ == 0 ? 1000 : 2;  // the first run is for warming up
    return 4.0;
  };
  EXPECT_DOUBLE_EQ(seconds_per_item(run, 7, [&] { return now; }), 0.5);
  EXPECT_EQ(runs, 5);
}

}  // namespace
}  // namespace tulle
