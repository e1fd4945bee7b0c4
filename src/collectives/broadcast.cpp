// broadcast: one rank's stream to everyone, by a binomial tree.
//
// How it works. The root encodes its stream once; every rank passes the frame on to its children as it came, those with
// the largest subtrees first, and then decodes it.
//
//   depth     ⌈log2 P⌉ at most
//   messages  up to ⌈log2 P⌉ per rank
//   data      k pairs into each port, k·⌈log2 P⌉ out of the root's

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/exchange.hpp"
#include "collectives/patterns/binomial.hpp"
#include "collectives/tree.hpp"
#include "comm/bruck.hpp"

namespace tulle::algorithms {
Task<Outcome> broadcast(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const patterns::Binomial tree(exchange.rank(), exchange.size(), options.root);
  if (tree.is_root()) {
    Part mine = Exchange::contribution(payload.stream);
    exchange.encode(mine, mine.frame);
    pass_down(exchange, tree, mine, 0);
    co_return exchange.outcome(std::move(mine));
  }
  Incoming message = co_await operation.receive(tree.parent(), 0);
  co_return exchange.outcome(open_and_pass_down(exchange, tree, std::move(message), 0));
}

double broadcast_cost(const CostInput& input) {
  return patterns::bruck_rounds(input.ranks) *
         message_seconds(input.profile, input.stream_bytes(input.nnz, input.dimension));
}

}  // namespace tulle::algorithms
