// ssar_recursive_double: sparse allreduce for little data, where latency decides. SparCML, section 4.1.
//
// How it works. In round t a rank exchanges its *sum* with the rank at distance 2^t and reduces the two; after log2 P
// rounds everyone holds the sum of all. The sum grows on the way: from k pairs when all ranks hold the same indices to
// 2^t·k when they hold different ones. Where the bound on its size passes δ it becomes dense by itself. Where P is no
// power of two, extra ranks fold into a partner before the first round and are told the result after the last.
//
//   depth     log2 P, and up to 2 more where P is no power of two
//   messages  log2 P per rank
//   data      between k·log2 P (same indices) and k·(P−1) pairs (different indices) through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/patterns/fold.hpp"
#include "collectives/recursive_double.hpp"

namespace tulle::algorithms {

Task<Outcome> ssar_recursive_double(Operation& operation, Payload& payload, const CallOptions& options,
                                    AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part sum = co_await recursive_double(exchange, Exchange::contribution(payload.stream));
  co_return exchange.outcome(std::move(sum));
}

double ssar_recursive_double_cost(const CostInput& input) {
  const Profile& profile = input.profile;
  double seconds = patterns::Fold::extra_depth(input.ranks) *
                   message_seconds(profile, input.stream_bytes(input.result_nnz, input.dimension));
  for (int distance = 1; 2 * distance <= input.ranks; distance *= 2) {
    const double nnz = input.union_of(distance);
    seconds += exchange_seconds(profile, input.stream_bytes(nnz, input.dimension)) + merge_seconds(input, 2, nnz) +
               input.coding_seconds(nnz, input.dimension);
  }
  return seconds;
}

}  // namespace tulle::algorithms
