// The terms that cost functions are made of, in α, β and γ. docs/algorithms.md explains them.
#pragma once

#include "tulle/collectives/algorithm.hpp"

namespace tulle {

/// One message of `bytes`: α + β·bytes.
double message_seconds(const Profile& profile, double bytes);
/// The same where the other rank sends as much at the same time.
double exchange_seconds(const Profile& profile, double bytes);
/// `count` messages of `bytes` each that leave or meet at one rank: latencies overlap, the processor's share does not.
double burst_seconds(const Profile& profile, double count, double bytes);
/// P − 1 messages of `block_bytes` each, out of one port.
double split_seconds(const CostInput& input, double block_bytes);
/// Everyone's `block_bytes` to everyone in ⌈log2 P⌉ rounds: (P−1) blocks through each port.
double gather_seconds(const CostInput& input, double block_bytes);
/// Reducing `streams` sparse streams of `nnz` each.
double merge_seconds(const CostInput& input, double streams, double nnz);
/// Touching `values` dense values. Infinite where a dense vector is refused.
double dense_seconds(const CostInput& input, double values);
/// Joining the blocks of a sum that holds `nnz`, sparse or dense as it is smaller.
double join_seconds(const CostInput& input, double nnz);
/// Making one rank's contribution dense. Infinite where a dense vector is refused.
double densify_seconds(const CostInput& input);

/// Looking at `values` values for the largest.
double select_seconds(const CostInput& input, double values);
/// Spar-Reduce-Scatter in `teams` teams, its selections included.
double scatter_top_k_seconds(const CostInput& input, int teams);

}  // namespace tulle
