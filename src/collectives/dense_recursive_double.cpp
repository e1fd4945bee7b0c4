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
  double rounds = patterns::Fold::extra_depth(input.ranks);
  for (int distance = 1; 2 * distance <= input.ranks; distance *= 2) rounds += 1;
  return densify_seconds(input) + rounds * (exchange_seconds(input.profile, input.dimension * input.value_bytes) +
                                            dense_seconds(input, input.dimension));
}

}  // namespace tulle::algorithms
