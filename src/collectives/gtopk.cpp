// gtopk: the k largest values of a tree of sums. Shi et al. 2019.
//
// How it works. Every rank takes the k largest values of its accumulator. *Up* a binomial tree a rank adds what its
// children send, one after the other, and after each keeps the k largest of the sum; *down* the tree the root's values
// go to everyone. What a merge drops stays with the rank that merged. A missing child is an empty stream, so any number
// of ranks will do.
//
//   depth     2·⌈log2 P⌉
//   messages  1 up, and down as many as the rank has children
//   data      2·⌈log2 P⌉·k pairs through the root's port, half of them in each direction

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/ledger.hpp"
#include "collectives/patterns/binomial.hpp"
#include "collectives/steps.hpp"
#include "collectives/tree.hpp"
#include "comm/bruck.hpp"
#include "tulle/select/top_k.hpp"

namespace tulle::algorithms {
namespace {

constexpr Step kUpStep = 0, kDownStep = after_message(kUpStep);

AnyStream merge_and_keep(Exchange& exchange, Ledger& ledger, AnyStream mine, Part theirs, std::uint64_t k) {
  const Part operands[] = {{std::move(mine), 0, {}}, std::move(theirs)};
  const Part sum = exchange.reduce_many(operands, LayoutChoice::sparse);
  exchange.operation().charge({.sparse_items = sum.stream.nnz()});
  SplitStream split = split_top_k(sum.stream, k);
  ledger.drop(std::move(split.rest));
  return std::move(split.kept);
}

}  // namespace

Task<Outcome> gtopk(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  const patterns::Binomial tree(exchange.rank(), exchange.size(), 0);
  AnyStream largest = ledger.take_top_k({0, exchange.dimension()}, options.k);
  for (int bit = 1; tree.has_child(bit); bit *= 2) {
    Incoming message = co_await operation.receive(tree.child(bit), kUpStep);
    largest = merge_and_keep(exchange, ledger, std::move(largest), exchange.open(std::move(message)), options.k);
  }
  Part result{std::move(largest), 0, {}};
  if (tree.is_root()) {
    result = exchange.with_coded_values(std::move(result), kDownStep);
    if (result.frame.empty()) exchange.encode(result, result.frame);
    pass_down(exchange, tree, result, kDownStep);
  } else {
    result = exchange.with_coded_contribution(std::move(result), kUpStep);
    exchange.send(tree.parent(), kUpStep, result);
    Incoming message = co_await operation.receive(tree.parent(), kDownStep);
    result = open_and_pass_down(exchange, tree, std::move(message), kDownStep);
  }
  ledger.settle(result.stream);
  co_return exchange.outcome(std::move(result), ledger);
}

double gtopk_cost(const CostInput& input) {
  const double rounds = patterns::bruck_rounds(input.ranks);
  const double bytes = input.coded_stream_bytes(input.nnz, input.dimension);
  return select_seconds(input, input.dimension) +
         rounds * (2 * message_seconds(input.profile, bytes) + merge_seconds(input, 2, input.nnz) +
                   input.coding_seconds(2 * input.nnz, input.dimension));
}

}  // namespace tulle::algorithms
