// topka: everyone's k largest values to everyone. The allgather that SparDL and Ok-Topk compare with.
//
// How it works. A rank takes the k largest values of its accumulator; they travel to everyone in ⌈log2 P⌉ rounds
// (Bruck), and everyone sums them in rank order. Everything that was taken is delivered.
//
//   depth     ⌈log2 P⌉
//   messages  ⌈log2 P⌉ per rank
//   data      k·(P−1) pairs through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/ledger.hpp"

namespace tulle::algorithms {

Task<Outcome> topka(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  AnyStream taken = ledger.take_top_k({0, exchange.dimension()}, options.k);
  Part mine = exchange.with_coded_values({std::move(taken), 0, {}}, 0);
  const PoolVector<Part> parts = co_await gather_parts(exchange, std::move(mine), 0);
  Part result = exchange.reduce_many(parts, LayoutChoice::sparse);
  ledger.settle(result.stream);
  co_return exchange.outcome(std::move(result), ledger);
}

double topka_cost(const CostInput& input) {
  return select_seconds(input, input.dimension) +
         gather_seconds(input, input.coded_stream_bytes(input.nnz, input.dimension)) +
         merge_seconds(input, input.ranks, input.nnz) + input.coding_seconds(input.nnz * input.ranks, input.dimension);
}

}  // namespace tulle::algorithms
