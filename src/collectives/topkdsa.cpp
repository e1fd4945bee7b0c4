// topkdsa: everyone's k largest values, reduced by SparCML's split and allgather.
//
// How it works. A rank takes the k largest values of its accumulator and sends each owner the pairs of its block. The
// owner reduces them; the blocks, sparse or dense as each is smaller, travel to everyone. Everything that was taken is
// delivered.
//
//   depth     1 + ⌈log2 P⌉
//   messages  P − 1 + ⌈log2 P⌉ per rank
//   data      between 2·k·(P−1)/P pairs and k·(P−1)/P pairs plus (P−1)/P·N values through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/ledger.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"

namespace tulle::algorithms {
namespace {
constexpr Step kSplitStep = 0, kGatherStep = after_message(kSplitStep);
}

Task<Outcome> topkdsa(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  Part mine{ledger.take_top_k({0, exchange.dimension()}, options.k), 0, {}};
  Part sum = co_await split_and_reduce(exchange, std::move(mine), kSplitStep);
  Part block = exchange.with_coded_values(std::move(sum), kGatherStep);
  Part result = co_await gather_blocks(exchange, std::move(block), kGatherStep);
  ledger.settle(result.stream);
  co_return exchange.outcome(std::move(result), ledger);
}

double topkdsa_cost(const CostInput& input) {
  return select_seconds(input, input.dimension) + ssar_split_allgather_cost(input);
}

}  // namespace tulle::algorithms
