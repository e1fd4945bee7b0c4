// spar_reduce_scatter: everyone gets the largest values of one block of the sum. SparDL, section 3.1.
//
// How it works. [0, N) is cut into P blocks in a circle. A rank keeps its own block for itself and packs the next 1, 2,
// 4, … blocks into *bags*. It sends the bags from the last to the first, and adds what it receives to the blocks it
// still holds. A block is cut down to its *quota* of k/P values only when it is about to be sent, so that messages do
// not grow with the number of ranks that have added to them; in the end the rank cuts down its own.
//
//   depth     ⌈log2 P⌉
//   messages  ⌈log2 P⌉ per rank
//   data      k·(P−1)/P pairs through each port
//
// The rank does not learn what became of the values it sent: they count as delivered, and whoever cut them away keeps
// them in its accumulator.

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/scatter_top_k.hpp"

namespace tulle::algorithms {

Task<Outcome> spar_reduce_scatter(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  const TeamPlace place = TeamPlace::of(exchange.rank(), exchange.size(), 1);
  const ScatterQuota quota{options.k, options.k, exchange.dimension(), options.step.value_or(operation.sequence())};
  AnyStream block = co_await scatter_top_k(exchange, ledger, place, quota, 0);
  ledger.settle_without_result();
  co_return exchange.outcome({std::move(block), 0, {}}, ledger);
}

double spar_reduce_scatter_cost(const CostInput& input) { return scatter_top_k_seconds(input, 1); }

}  // namespace tulle::algorithms
