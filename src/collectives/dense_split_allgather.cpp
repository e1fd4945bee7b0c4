// dense_split_allgather: dense allreduce by direct exchange of blocks. The dense half of SparCML's quantized variant.
//
// How it works. As dsar_split_allgather, with dense blocks in the split phase too: every rank sends each owner its
// block, the owner sums them in rank order into the result, and the sums are gathered in ⌈log2 P⌉ rounds.
//
//   depth     1 + ⌈log2 P⌉
//   messages  P − 1 + ⌈log2 P⌉ per rank
//   data      2·(P−1)/P·N values through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/dense_blocks.hpp"

namespace tulle::algorithms {

Task<Outcome> dense_split_allgather(Operation& operation, Payload& payload, const CallOptions& options,
                                    AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part sum = co_await split_and_gather_dense(exchange, exchange.dense_contribution(payload.stream));
  co_return exchange.outcome(std::move(sum));
}

double dense_split_allgather_cost(const CostInput& input) {
  const double block = input.dimension / input.ranks, coding = value_coding_seconds(input, block);
  return densify_seconds(input) + split_seconds(input, block * input.value_bytes) +
         dense_seconds(input, input.dimension) + coding +
         gather_seconds(input, block * input.coded_value_bytes, coding);
}

}  // namespace tulle::algorithms
