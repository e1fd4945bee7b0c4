#include "tulle/tune/bounds.hpp"

#include <algorithm>
#include <cmath>

#include "collectives/index_choice.hpp"
#include "tulle/codec/index_coding.hpp"

namespace tulle {
namespace {

double latency_seconds(const CostInput& input) { return std::log2(input.ranks) * input.profile.alpha_seconds; }

double word_seconds(const CostInput& input) { return input.value_bytes * input.profile.beta_seconds_per_byte; }

// Of (P−1)/P parts of `values` through each port.
double share_seconds(const CostInput& input, double values) {
  return (input.ranks - 1.0) / input.ranks * values * word_seconds(input);
}

// Of drawing positions uniformly, each rank knows its own k; the sum's other K − k can be any of N − k.
double entropy_seconds(const CostInput& input) {
  const double unknown = std::max(0.0, input.result_nnz - input.nnz);
  const double index_bits = unknown * index_entropy_bits(input.dimension - input.nnz, unknown);
  return input.profile.beta_seconds_per_byte * (unknown * input.coded_value_bytes + index_bits / 8);
}

// Whether the sum is smaller as pairs, indices coded as asked for, than dense.
bool is_smaller_sparse(const CostInput& input) {
  const double density = input.result_nnz / input.dimension;
  const IndexChoice choice(input.index_coding, input.profile);
  const double bits = choice.bits(density, static_cast<std::size_t>(input.index_bytes));
  return density * (input.value_bytes + bits / 8) < input.value_bytes;
}

}  // namespace

double sparse_limit(const CostInput& input) {
  return input.dimension * input.value_bytes / (input.index_bytes + input.value_bytes);
}

std::vector<Bound> lower_bounds(const CostInput& input) {
  constexpr double kAlmost = 0.99;
  const double latency = latency_seconds(input);
  const double most_nnz = input.nnz * input.ranks;
  const double kappa = sparse_limit(input) / input.dimension;
  // The proofs give every rank a link of its own, and deliver all of the sum.
  const bool has_links = input.ranks > 1 && input.ranks_at_a_port() <= 1;
  const bool is_raw = has_links && input.coded_value_bytes >= input.value_bytes;
  const bool stays_sparse = is_raw && input.result_nnz < input.dimension && is_smaller_sparse(input);
  const bool fills_in = is_raw && !stays_sparse;
  const double best_dense = 2 * share_seconds(input, input.dimension);
  return {
      {"identical_indices", "SparCML, Lemma 4.1", "log2(P)*alpha + 2*(P-1)/P*k*beta_d", "K < delta",
       latency + 2 * share_seconds(input, input.nnz), stays_sparse},
      {"disjoint_indices", "SparCML, Lemma 4.1", "log2(P)*alpha + (P-1)*k*beta_d", "K < delta and K = k*P",
       latency + (input.ranks - 1) * input.nnz * word_seconds(input),
       stays_sparse && input.result_nnz >= kAlmost * most_nnz},
      {"fill_in", "SparCML, Theorem 4.2", "log2(P)*alpha + (P-1)/P*N*beta_d", "K >= delta",
       latency + share_seconds(input, input.dimension), fills_in},
      {"twice_dense", "SparCML, Lemma 4.3", "(P-1)/P*N*beta_d: half the best dense time", "K >= delta", best_dense / 2,
       fills_in},
      {"two_over_kappa", "SparCML SC'19, Lemma 5.2", "kappa*(P-1)/P*N*beta_d: kappa/2 of the best dense time",
       "K >= delta", best_dense * kappa / 2, fills_in},
      {"entropy", "log2 C(N-k, K-k)", "log2(P)*alpha + beta*((K-k)*value + log2 C(N-k, K-k)/8)",
       "positions are uniform", latency + entropy_seconds(input), has_links},
  };
}

}  // namespace tulle
