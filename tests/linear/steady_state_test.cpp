// A training step that is like those before it asks the system for no memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "collectives/count_allocations.hpp"
#include "linear/sample_rows.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::linear {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsAllocations = false;
#else
constexpr bool kCountsAllocations = true;
#endif

constexpr std::uint64_t kSteps = 60;  // of one window
constexpr std::size_t kWindows = 5;
// Threads decide how many messages are under way at once; now and then there are more than ever before, and the pool
// grows. What a step itself asks for shows in every window, so the best one counts, and may hold an accident or two.
constexpr std::uint64_t kMostFromPool = kSteps / 8;

struct Allocations {
  std::uint64_t calls = 0, from_pool = 0;
};

Allocations so_far() { return {testing::allocation_count(), pool_stats().system_allocations}; }

// Trains for six epochs and counts in the middle of each but the first; the least of both counts. Ranks are threads,
// so the counts are of all of them.
Allocations allocations_of_steps(TrainOptions options) {
  constexpr int kRanks = 2;
  std::array<Allocations, kWindows> first, last;
  options.epochs = 1 + kWindows;
  options.on_step = [&](std::uint64_t done, std::uint64_t all) {
    const std::uint64_t steps_of_epoch = all / options.epochs;
    const std::uint64_t epoch = done / steps_of_epoch, step = done % steps_of_epoch;
    if (epoch == 0 || epoch > kWindows) return;
    if (step == steps_of_epoch / 5) first[epoch - 1] = so_far();
    if (step == steps_of_epoch / 5 + kSteps) last[epoch - 1] = so_far();
  };
  const Rows rows = testing::sample_rows({.rows = 4000, .features = 5000, .density = 0.01});
  run_threads(kRanks, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const bool is_replicated = options.solver == Solver::scd;
    Dataset data(is_replicated ? rows : testing::slice_rows(rows, rank * 2000, (rank + 1) * 2000));
    train(communicator, data, nullptr, options);
  });
  Allocations least{.calls = last[0].calls - first[0].calls, .from_pool = last[0].from_pool - first[0].from_pool};
  for (std::size_t window = 0; window < kWindows; ++window) {
    EXPECT_GT(first[window].calls, 0u);
    EXPECT_GE(last[window].calls, first[window].calls);
    least.calls = std::min(least.calls, last[window].calls - first[window].calls);
    least.from_pool = std::min(least.from_pool, last[window].from_pool - first[window].from_pool);
  }
  return least;
}

TEST(SteadyState, OfSgdAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "sanitizers allocate";
  for (const std::string row : {"ssar_split_allgather", "dense", "ssar_recursive_double"}) {
    for (const int staleness : {0, 2}) {
      const Allocations steps = allocations_of_steps(
          {.penalty = {.l1 = 1e-5, .l2 = 1e-4}, .batch_rows = 20, .aggregation = row, .staleness = staleness});
      EXPECT_EQ(steps.calls, 0u) << row << " " << staleness;
      EXPECT_LE(steps.from_pool, kMostFromPool) << row << " " << staleness;
    }
  }
}

TEST(SteadyState, OfScdAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "sanitizers allocate";
  for (const std::string row : {"ssar_split_allgather", "dense"}) {
    const Allocations steps = allocations_of_steps({.solver = Solver::scd, .aggregation = row, .coordinates = 20});
    EXPECT_EQ(steps.calls, 0u) << row;
    EXPECT_LE(steps.from_pool, kMostFromPool) << row;
  }
}

}  // namespace
}  // namespace tulle::linear
