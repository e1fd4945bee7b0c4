// dense_recursive_double: dense allreduce for short vectors, where latency decides.
//
// How it works. As ssar_recursive_double, with the whole dense vector in every round.
//
//   depth     log2 P, and up to 2 more where P is no power of two
//   messages  log2 P per rank
//   data      N·log2 P values through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/patterns/fold.hpp"
#include "collectives/recursive_double.hpp"

namespace tulle::algorithms {

Task<Outcome> dense_recursive_double(Operation& operation, Payload& payload, const CallOptions& options,
                                     AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part sum = co_await recursive_double(exchange, exchange.dense_contribution(payload.stream));
  co_return exchange.outcome(std::move(sum));
}

double dense_recursive_double_cost(const CostInput& input) {
  const double bytes = input.dimension * input.value_bytes;
  double seconds = densify_seconds(input) + fold_seconds(input, bytes, bytes, bytes);
  if (patterns::Fold::extra_depth(input.ranks) > 0) seconds += dense_pair_seconds(input, input.dimension);
  for (int distance = 1; 2 * distance <= input.ranks; distance *= 2) {
    seconds += exchange_seconds(input.profile, bytes) + dense_pair_seconds(input, input.dimension);
  }
  return seconds;
}

}  // namespace tulle::algorithms
