// ssar_split_allgather: sparse allreduce for more data, where bandwidth decides. SparCML, section 4.1.
//
// How it works. *Split*: [0, N) is cut into P blocks, and every rank sends each owner the pairs of that owner's block.
// The owner reduces what it gets, in rank order. *Allgather*: the owners' blocks, sparse or dense as each owner finds
// smaller, travel to everyone in ⌈log2 P⌉ rounds, encoded once and forwarded as they are; blocks are then joined.
//
//   depth     1 + ⌈log2 P⌉
//   messages  P − 1 + ⌈log2 P⌉ per rank
//   data      between 2·k·(P−1)/P (same indices) and k·P pairs (different indices) through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"

namespace tulle::algorithms {
namespace {
constexpr Step kSplitStep = 0, kGatherStep = after_message(kSplitStep);
}

Task<Outcome> ssar_split_allgather(Operation& operation, Payload& payload, const CallOptions& options,
                                   AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part sum = co_await split_and_reduce(exchange, Exchange::contribution(payload.stream), kSplitStep);
  Part block = exchange.with_coded_sum(std::move(sum), kGatherStep);
  Part whole = co_await gather_blocks(exchange, std::move(block), kGatherStep);
  co_return exchange.outcome(std::move(whole));
}

double ssar_split_allgather_cost(const CostInput& input) {
  const double ranks = input.ranks, others = (ranks - 1) / ranks;
  const double block = input.dimension / ranks, nnz = input.nnz / ranks, sum_nnz = input.result_nnz / ranks;
  const bool is_sparse = input.is_coded_sparse(sum_nnz, block);
  const double coding = value_coding_seconds(input, is_sparse ? sum_nnz : block) +
                        (is_sparse ? input.coding_seconds(sum_nnz, block) / 2 : 0);
  return split_seconds(input, input.contribution_bytes(nnz, block)) +
         others * input.coding_seconds(input.nnz, input.dimension) +
         reduce_seconds(input, ranks, nnz, block, sum_nnz, input.layout_value_bytes) + coding +
         gather_seconds(input, input.coded_stream_bytes(sum_nnz, block), coding) +
         join_seconds(input, input.result_nnz);
}

}  // namespace tulle::algorithms
