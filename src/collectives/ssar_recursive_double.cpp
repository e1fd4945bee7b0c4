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

#include <algorithm>

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

namespace {

// The sum of a group of ranks as it grows. Once a bound has made it dense it stays so.
class GrowingSum {
 public:
  explicit GrowingSum(const CostInput& input)
      : input_(input), nnz_(input.nnz), is_dense_(input.nnz >= input.dimension) {}

  double bytes() const {
    return is_dense_ ? input_.dimension * input_.value_bytes : input_.contribution_bytes(nnz_, input_.dimension);
  }
  /// What coding its indices takes, at both ends together.
  double coding_seconds() const { return is_dense_ ? 0 : input_.coding_seconds(nnz_, input_.dimension); }
  /// What reducing it with the sum of `others` more ranks takes.
  double grow(int others) {
    const double pairs = nnz_ + input_.union_of(others);
    const double seconds = is_dense_
                               ? dense_pair_seconds(input_, input_.dimension)
                               : reduce_seconds(input_, 2, pairs / 2, input_.dimension, pairs, input_.value_bytes);
    is_dense_ = is_dense_ || !input_.is_sparse(pairs, input_.dimension);
    nnz_ = input_.union_of(ranks_ += others);
    return seconds;
  }

 private:
  const CostInput& input_;
  double nnz_;
  bool is_dense_;
  int ranks_ = 1;
};

}  // namespace

double ssar_recursive_double_cost(const CostInput& input) {
  const int extras = input.ranks - patterns::Fold(0, input.ranks).core_size();
  // Ranks that folded another in are neighbours: their groups have the largest sums, and the others wait for them.
  const auto contributors = [&](int group) { return group + std::min(group, extras); };
  GrowingSum sum(input);
  const double first_bytes = sum.bytes();
  double seconds = 0;
  if (extras > 0) seconds += sum.coding_seconds() + sum.grow(1);
  for (int distance = 1; 2 * distance <= input.ranks; distance *= 2) {
    seconds += exchange_seconds(input.profile, sum.bytes()) + sum.coding_seconds();
    seconds += sum.grow(contributors(2 * distance) - contributors(distance));
  }
  if (extras > 0) seconds += sum.coding_seconds();
  return seconds + fold_seconds(input, first_bytes, first_bytes, sum.bytes());
}

}  // namespace tulle::algorithms
