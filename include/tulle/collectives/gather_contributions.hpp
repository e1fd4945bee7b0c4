// Everyone's contribution to everyone, each by itself: for aggregates that are no sum.
//
// An allreduce gives the sum and forgets who brought what. Here every rank gets all P contributions, decoded and in
// rank order, with the norm of each, so that a method can weigh them: mean_of_senders() is one such aggregate.
// Who calls from which thread, and what failure does, is as in collectives.hpp.
#pragma once

#include "tulle/collectives/call.hpp"
#include "tulle/collectives/cost_input.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/comm/request.hpp"
#include "tulle/stream/reduction.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What one rank brought, as everyone decodes it.
struct Contribution {
  AnyStream stream;
  /// L2, of the decoded values: every rank computes it from the same bits, so that it needs no place in a message and
  /// a rank cannot claim another one. The same bits everywhere. 0 where norms are left out.
  double norm = 0;
};

/// Whether contributions come with their norms, which costs a pass over the values of each.
enum class Norms : std::uint8_t { computed, left_out };

/// Whether a rank keeps the loss of coding its own contribution. A rank that keeps it, to bring it again, has
/// stochastic codings send the scales that lose least, as rows on accumulators do, instead of those that are right on
/// average: their noise would add up.
enum class CodingLoss : std::uint8_t { dropped, kept };

struct Contributions {
  PoolVector<Contribution> by_rank;
  Counts counts;
};

/// Gives every rank every rank's stream, the same bits everywhere. A contribution is coded once, by the rank that
/// brings it (`index_coding`, `value_coding`; rounding draws from `seed`, `step`, the channel and the rank), and
/// forwarded as it is. The caller finds its own contribution decoded too: what it brought minus that is what the coding
/// lost, exactly. Streams keep their layout, sparse or dense; f16 and bf16 come back as f32, so that nothing is rounded
/// after the coding.
/// REQUIRES: equal type, dimension and options on all ranks; layouts and numbers of non-zeros may differ, and be 0.
/// Streams of the whole dimension, op sum, algorithm auto; else bad_input. Integers travel raw, or not at all.
/// Costs (P−1)·k coded pairs through each port, and memory for P decoded contributions on every rank.
Contributions gather_contributions(Communicator& communicator, AnyStream stream, const CallOptions& options = {});
/// A stream that borrows memory needs it until the request is over, as in collectives.hpp.
Request<Contributions> igather_contributions(Communicator& communicator, AnyStream stream,
                                             const CallOptions& options = {}, Norms norms = Norms::computed,
                                             CodingLoss loss = CodingLoss::dropped);

/// What gather_contributions() takes where a rank brings `input.nnz` values, dense ones where that is the dimension.
double gather_contributions_seconds(const CostInput& input);

/// What is done to contributions with large norms before they are averaged.
enum class Clipping : std::uint8_t {
  none,
  median_norm,  ///< those above the median of the norms are scaled down to it, as SparseLoCo does
};
std::string_view to_string(Clipping clipping);

/// For each index the mean over the ranks *that sent it*, in rank order: the same bits wherever it is computed from the
/// same contributions. A dense contribution sends every index, zeros too; where there is one the result is dense.
/// The median is over the ranks that sent anything, of two middle norms the lower one, as torch.median has it.
///
/// Exempt from conservation: an index that s of P ranks sent is divided by s and not by P, and clipping scales values
/// that have left the residuals. What is delivered is therefore not what residuals lost, divided by P.
///
/// Throws bad_input for integers, and with median_norm for norms that are not finite; all ranks do so alike.
/// Computes on the caller's thread, in one pass over all pairs; sums in f64 and rounds once.
AnyStream mean_of_senders(const Contributions& contributions, Clipping clipping = Clipping::none,
                          KernelReport* report = nullptr);

}  // namespace tulle
#pragma GCC visibility pop
