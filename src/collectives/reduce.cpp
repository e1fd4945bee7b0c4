// reduce: the sum at one rank, by a binomial tree.
//
// How it works. Every rank reduces what its children send, those with the smallest subtrees first, and sends the sum to
// its parent. Sums grow on the way up and become dense by themselves where the bound on their size passes δ.
//
//   depth     ⌈log2 P⌉ at most
//   messages  1 per rank (0 at the root)
//   data      between k·log2 P (same indices) and k·(P−1) pairs (different indices) into the root

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/exchange.hpp"
#include "collectives/patterns/binomial.hpp"

namespace tulle::algorithms {

Task<Outcome> reduce(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const patterns::Binomial tree(exchange.rank(), exchange.size(), options.root);
  Part sum = Exchange::contribution(payload.stream);
  for (int bit = 1; tree.has_child(bit); bit *= 2) {
    Incoming message = co_await operation.receive(tree.child(bit), 0);
    sum = exchange.reduce(std::move(sum), exchange.open(std::move(message)));
  }
  if (tree.is_root()) co_return exchange.outcome(std::move(sum));
  exchange.send(tree.parent(), 0, sum);
  co_return exchange.outcome({AnyStream::empty(exchange.type(), exchange.dimension()), 0});
}

double reduce_cost(const CostInput& input) {
  double seconds = 0;
  for (int subtree = 1; subtree < input.ranks; subtree *= 2) {
    const double nnz = input.union_of(subtree);
    seconds += message_seconds(input.profile, input.stream_bytes(nnz, input.dimension)) + merge_seconds(input, 2, nnz);
  }
  return seconds;
}

}  // namespace tulle::algorithms
