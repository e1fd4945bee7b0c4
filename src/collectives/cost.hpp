// The terms that cost functions are made of, in α, β and γ. docs/algorithms.md explains them.
#pragma once

#include "tulle/collectives/registry.hpp"

namespace tulle {

/// One message of `bytes`: α + β·bytes.
double message_seconds(const Profile& profile, double bytes);
/// The same where the other rank sends as much at the same time.
double exchange_seconds(const Profile& profile, double bytes);
/// `count` messages of `bytes` each that leave or meet at one rank: latencies overlap, the processor's share does not.
double burst_seconds(const Profile& profile, double count, double bytes);
/// P − 1 messages of `block_bytes` each, out of one port.
double split_seconds(const CostInput& input, double block_bytes);
/// Everyone's `block_bytes` to everyone: (P−1) blocks through each port, in ⌈log2 P⌉ rounds or, where they are large,
/// around a ring. Each is decoded in `decode_seconds`, large ones while the next travels.
double gather_seconds(const CostInput& input, double block_bytes, double decode_seconds = 0);
/// Where P is no power of two and each extra rank hands its contribution to a partner first and is told the sum last:
/// what both take beyond the rounds of the others. `first_bytes` are what a rank gets in the first of these.
double fold_seconds(const CostInput& input, double contribution_bytes, double first_bytes, double sum_bytes);
/// Reducing `streams` sparse streams of `nnz` each.
double merge_seconds(const CostInput& input, double streams, double nnz);
/// Touching `values` dense values. Infinite where a dense vector is refused.
double dense_seconds(const CostInput& input, double values);
/// Reducing two dense operands of `values` each, as dense rows do in every round.
double dense_pair_seconds(const CostInput& input, double values);
/// Reducing `streams` contributions of `nnz` each over `extent` values to a dense sum.
double reduce_to_dense_seconds(const CostInput& input, double streams, double nnz, double extent);
/// The same to a sum of `sum_nnz`, sparse or dense as values of `value_bytes` will have it.
double reduce_seconds(const CostInput& input, double streams, double nnz, double extent, double sum_nnz,
                      double value_bytes);
/// Joining the blocks of a sum that holds `nnz` and whose values are coded, where nothing lies in its place yet.
double join_seconds(const CostInput& input, double nnz);
/// Coding `values` values at one end; nothing where they travel as they are.
double value_coding_seconds(const CostInput& input, double values);
/// Making one rank's contribution dense. Infinite where a dense vector is refused.
double densify_seconds(const CostInput& input);

/// Looking at `values` values for the largest.
double select_seconds(const CostInput& input, double values);
/// Spar-Reduce-Scatter in `teams` teams, its selections included.
double scatter_top_k_seconds(const CostInput& input, int teams);

}  // namespace tulle
