// dsar_split_allgather: sparse allreduce whose sum is dense. SparCML, section 4.1.
//
// How it works. The *split* phase is that of ssar_split_allgather: owners get the pairs of their block. The owner sums
// them straight into its place in the dense result, and the *allgather* sends dense blocks, which are received straight
// into theirs.
//
//   depth     1 + ⌈log2 P⌉
//   messages  P − 1 + ⌈log2 P⌉ per rank
//   data      between (P−1)/P·N values and the same plus k pairs through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/dense_blocks.hpp"

namespace tulle::algorithms {

Task<Outcome> dsar_split_allgather(Operation& operation, Payload& payload, const CallOptions& options,
                                   AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part sum = co_await split_and_gather_dense(exchange, Exchange::contribution(payload.stream));
  co_return exchange.outcome(std::move(sum));
}

double dsar_split_allgather_cost(const CostInput& input) {
  const double ranks = input.ranks, others = (ranks - 1) / ranks;
  const double block = input.dimension / ranks, nnz = input.nnz / ranks;
  const double coding = value_coding_seconds(input, block);
  return split_seconds(input, input.contribution_bytes(nnz, block)) +
         others * input.coding_seconds(input.nnz, input.dimension) + reduce_to_dense_seconds(input, ranks, nnz, block) +
         coding + gather_seconds(input, block * input.coded_value_bytes, coding);
}

}  // namespace tulle::algorithms
