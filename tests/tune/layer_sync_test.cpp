// RedSync's equations, by hand.
#include "tulle/tune/layer_sync.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tulle {
namespace {

constexpr double kMB = 1 << 20, kKB = 1 << 10;

// p = 8 GPUs at 3.5 GB/s, 0.1 % of the values, which travel as index and value.
LayerCall paper_call() {
  return {
      .ranks = 8,
      .density = 0.001,
      .profile = {
          .alpha_seconds = 0, .beta_seconds_per_byte = 1 / 3.5e9, .gamma_sparse_seconds = 0, .gamma_dense_seconds = 0}};
}

TEST(LayerSync, equals_both_equations) {
  const LayerCall call{.ranks = 4,
                       .density = 0.01,
                       .profile = {.alpha_seconds = 1e-5,
                                   .beta_seconds_per_byte = 1e-9,
                                   .gamma_sparse_seconds = 3e-9,
                                   .gamma_dense_seconds = 1e-9}};
  // M = 4,000,000 bytes: 1,000,000 values, 10,000 selected, 80,000 bytes of them.
  const LayerCost cost = layer_cost(call, 4e6, {"exact_top_k", 5e-5, 1e-9});
  EXPECT_NEAR(cost.select_seconds, 5e-5 + 1e-3, 1e-12);
  EXPECT_NEAR(cost.sparse_seconds, 1.05e-3 + 2 * 1e-5 + 3 * 80000 * 1e-9 + 4 * 10000 * 3e-9, 1e-12);
  EXPECT_NEAR(cost.dense_seconds, 4 * 1e-5 + 2 * 0.75 * 4e6 * 1e-9 + 0.75 * 2e6 * 1e-9, 1e-12);
  EXPECT_TRUE(cost.sparse_wins());
}

TEST(LayerSync, turns_where_both_take_the_same_time) {
  const SelectionCost selection{"trimmed_top_k", 6e-5, 2e-11};
  const LayerCall call = paper_call();
  const double bytes = turning_bytes(call, selection);
  const LayerCost at = layer_cost(call, bytes, selection);
  EXPECT_NEAR(at.sparse_seconds, at.dense_seconds, 1e-9 * at.dense_seconds);
  EXPECT_FALSE(layer_cost(call, 0.99 * bytes, selection).sparse_wins());
  EXPECT_TRUE(layer_cost(call, 1.01 * bytes, selection).sparse_wins());
}

TEST(LayerSync, never_turns_where_selecting_takes_longer_than_sending) {
  EXPECT_TRUE(std::isinf(turning_bytes(paper_call(), {"exact_top_k", 1e-5, 1e-8})));
  EXPECT_EQ(turning_bytes(paper_call(), {"free", 0, 0}), 0);
}

TEST(LayerSync, sends_more_than_a_share_of_the_bytes_when_many_ranks_gather) {
  // The paper's remark: at D = 0.1 % and p = 128 the bandwidth is 12.8 % and not 0.1 %: half of that, as Rabenseifner's
  // allreduce sends everything twice, and twice of it where indices travel too.
  LayerCall call = paper_call();
  call.ranks = 128;
  const LayerCost cost = layer_cost(call, 64 * kMB, {"free", 0, 0});
  EXPECT_NEAR(cost.sparse_seconds / cost.dense_seconds, 0.128, 1e-12);
  call.selected_bytes = 4;  // the quantized form sends indices alone
  EXPECT_NEAR(layer_cost(call, 64 * kMB, {"free", 0, 0}).sparse_seconds / cost.dense_seconds, 0.064, 1e-12);
}

// The paper's rules at 3.5 GB/s: dense below 128 KB, trimmed top-k up to 4 MB, binary search with reuse above. It gives
// the selections' times as a figure alone. What the rules imply: starting a selection takes as long as sending 128 KB
// densely, 65 us, which is a dozen kernel launches of 5 us; and the search, 4 launches dearer to start, is cheaper on
// large layers because it counts once where trimming counts, filters and sorts.
TEST(LayerSync, gives_the_papers_thresholds_at_its_bandwidth) {
  const SelectionCost selections[] = {{"trimmed_top_k", 62e-6, 4e-11}, {"threshold_binary_search", 82e-6, 2e-11}};
  const std::vector<LayerRegion> regions = layer_regions(paper_call(), selections);
  ASSERT_EQ(regions.size(), 3u);
  EXPECT_EQ(regions[0].selector, "");
  EXPECT_EQ(regions[1].selector, "trimmed_top_k");
  EXPECT_EQ(regions[2].selector, "threshold_binary_search");
  EXPECT_NEAR(regions[1].from_bytes, 128 * kKB, 0.05 * 128 * kKB);
  EXPECT_NEAR(regions[2].from_bytes, 4 * kMB, 0.05 * 4 * kMB);
}

TEST(LayerSync, regions_are_the_cheapest_at_every_size) {
  const SelectionCost selections[] = {{"a", 1e-4, 1e-10}, {"b", 3e-4, 1e-11}, {"never", 5e-4, 1e-9}};
  const LayerCall call = paper_call();
  const std::vector<LayerRegion> regions = layer_regions(call, selections);
  for (double bytes = 1000; bytes < 1e10; bytes *= 1.5) {
    std::string_view best;
    double least = layer_cost(call, bytes, selections[0]).dense_seconds;
    for (const SelectionCost& selection : selections) {
      const double seconds = layer_cost(call, bytes, selection).sparse_seconds;
      if (seconds >= least) continue;
      least = seconds;
      best = selection.selector;
    }
    std::string_view told;
    for (const LayerRegion& region : regions) told = region.from_bytes <= bytes ? region.selector : told;
    EXPECT_EQ(told, best) << bytes;
  }
}

}  // namespace
}  // namespace tulle
