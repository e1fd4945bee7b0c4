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
#include "collectives/patterns/bruck.hpp"

namespace tulle::algorithms {
namespace {

void pass_on(Operation& operation, const patterns::Binomial& tree, const Segments& frame) {
  std::uint64_t data_bytes = 0;
  for (const Buffer& segment : std::span(frame).subspan(1)) data_bytes += segment.size();
  int largest = 1;
  while (tree.has_child(largest)) largest *= 2;
  for (int bit = largest / 2; bit >= 1; bit /= 2) operation.send(tree.child(bit), 0, frame, data_bytes);
}

}  // namespace

Task<Outcome> broadcast(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const patterns::Binomial tree(exchange.rank(), exchange.size(), options.root);
  if (tree.is_root()) {
    const Part mine = Exchange::contribution(payload.stream);
    Segments frame;
    exchange.encode(mine, frame);
    pass_on(operation, tree, frame);
    co_return exchange.outcome(mine);
  }
  Incoming message = co_await operation.receive(tree.parent(), 0);
  if (message.segments.empty()) throw Error(ErrorKind::bad_message, "a broadcast message without a frame");
  pass_on(operation, tree, message.segments);
  co_return exchange.outcome(exchange.open(std::move(message)));
}

double broadcast_cost(const CostInput& input) {
  return patterns::bruck_rounds(input.ranks) *
         message_seconds(input.profile, input.stream_bytes(input.nnz, input.dimension));
}

}  // namespace tulle::algorithms
