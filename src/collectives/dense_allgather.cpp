// dense_allgather: everyone gets everyone's block of one vector, dense. What SparCML compares its sparse one with.
//
// How it works. Each rank makes its stream dense over its range. The blocks travel in ⌈log2 P⌉ rounds (Bruck), encoded
// once, forwarded as they are, and received where they belong in the result. Streams of the whole dimension travel
// whole and are reduced in rank order, as in sparse_allgather.
//
//   depth     ⌈log2 P⌉
//   messages  ⌈log2 P⌉ per rank, more where blocks are large
//   data      (P−1)/P·N values through each port for blocks of N/P; (P−1)·N where streams are whole

#include "collectives/algorithms.hpp"
#include "collectives/block_order.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"

namespace tulle::algorithms {

Task<Outcome> dense_allgather(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const bool is_block = payload.stream.range().size() < payload.stream.dimension();
  Buffer result;
  if (is_block) result = exchange.make_dense_result(0, payload.stream.is_phantom());
  Part mine = exchange.dense_contribution(payload.stream);
  const PoolVector<Part> parts = co_await gather_parts(exchange, std::move(mine), 0);
  if (!are_blocks(parts)) co_return exchange.outcome(exchange.reduce_many(parts, LayoutChoice::dense));
  co_return exchange.outcome(exchange.concatenate(parts, LayoutChoice::dense, {.dense = std::move(result)}));
}

double dense_allgather_cost(const CostInput& input) {
  return densify_seconds(input) + gather_seconds(input, input.dimension * input.value_bytes) +
         dense_seconds(input, input.dimension * input.ranks);
}

}  // namespace tulle::algorithms
