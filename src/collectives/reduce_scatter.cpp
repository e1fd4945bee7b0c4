// reduce_scatter: every rank gets one block of the sum. SparCML's split phase by itself.
//
// How it works. [0, N) is cut into P blocks; every rank sends each owner the pairs of that owner's block, and the owner
// reduces what it gets in rank order.
//
//   depth     1
//   messages  P − 1 per rank
//   data      k pairs through each port at most; (P−1)/P·k when spread evenly

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/exchange.hpp"
#include "collectives/split.hpp"

namespace tulle::algorithms {

Task<Outcome> reduce_scatter(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part block = co_await split_and_reduce(exchange, Exchange::contribution(payload.stream), 0);
  co_return exchange.outcome(std::move(block));
}

double reduce_scatter_cost(const CostInput& input) {
  return split_seconds(input, input.stream_bytes(input.nnz / input.ranks, input.dimension / input.ranks)) +
         merge_seconds(input, input.ranks, input.nnz / input.ranks);
}

}  // namespace tulle::algorithms
