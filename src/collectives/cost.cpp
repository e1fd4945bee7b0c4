#include "collectives/cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/exchange.hpp"
#include "collectives/index_choice.hpp"
#include "collectives/patterns/bruck.hpp"

namespace tulle {

Profile profile_of_rank(Profile profile, int ranks, int nodes) {
  profile.beta_seconds_per_byte *= ranks_at_a_port(ranks, nodes);
  return profile;
}

// Uniformly drawn sets of k of N overlap: N·(1 − (1 − k/N)^count), computed so that tiny densities do not vanish.
double CostInput::union_of(double count) const {
  if (dimension <= 0 || nnz <= 0) return 0;
  if (nnz >= dimension) return dimension;
  const double uniform = -dimension * std::expm1(count * std::log1p(-nnz / dimension));
  return std::clamp(nnz + overlap * (uniform - nnz), 0.0, dimension);
}

double CostInput::stream_bytes(double stored, double extent, double bytes_per_value) const {
  if (stored <= 0 || extent <= 0) return 0;
  const IndexChoice choice(index_coding, profile);
  const double bits = choice.bits(std::min(1.0, stored / extent), static_cast<std::size_t>(index_bytes));
  return std::min(stored * (bytes_per_value + bits / 8), extent * bytes_per_value);
}

double CostInput::coding_seconds(double stored, double extent) const {
  if (stored <= 0 || extent <= 0) return 0;
  const IndexChoice choice(index_coding, profile);
  return stored *
         choice.seconds(choice.for_density(std::min(1.0, stored / extent), static_cast<std::size_t>(index_bytes)));
}

double coded_value_bytes(const ValueCodec& codec, ValueType type) {
  constexpr std::uint64_t kMany = 1 << 20;
  return static_cast<double>(encoded_value_bytes(codec, compute_type(type), kMany)) / kMany;
}

double message_seconds(const Profile& profile, double bytes) {
  return profile.alpha_seconds + profile.beta_seconds_per_byte * bytes;
}

double exchange_seconds(const Profile& profile, double bytes) {
  return message_seconds(profile, bytes * profile.exchange_factor);
}

double burst_seconds(const Profile& profile, double count, double bytes) {
  constexpr double kProcessorsShare = 0.3;  // of α; measured with 2 to 8 ranks on 2 cores
  if (count <= 0) return 0;
  return profile.alpha_seconds * (1 + (count - 1) * kProcessorsShare) + count * bytes * profile.beta_seconds_per_byte;
}

double split_seconds(const CostInput& input, double block_bytes) {
  return burst_seconds(input.profile, input.ranks - 1, block_bytes);
}

double gather_seconds(const CostInput& input, double block_bytes) {
  return patterns::bruck_rounds(input.ranks) * input.profile.alpha_seconds +
         (input.ranks - 1) * block_bytes * input.profile.beta_seconds_per_byte;
}

double merge_seconds(const CostInput& input, double streams, double nnz) {
  return streams * nnz * input.profile.gamma_sparse_seconds;
}

double dense_seconds(const CostInput& input, double values) {
  if (input.dimension >= static_cast<double>(kDenseDimensionLimit)) return std::numeric_limits<double>::infinity();
  return values * input.profile.gamma_dense_seconds;
}

double join_seconds(const CostInput& input, double nnz) {
  const bool is_sparse = input.stream_bytes(nnz, input.dimension) < input.dimension * input.value_bytes;
  return is_sparse ? nnz * input.profile.gamma_sparse_seconds : dense_seconds(input, input.dimension);
}

double densify_seconds(const CostInput& input) {
  return input.nnz >= input.dimension ? 0 : dense_seconds(input, input.nnz + input.dimension);
}

double select_seconds(const CostInput& input, double values) { return values * input.profile.gamma_select_seconds; }

double scatter_top_k_seconds(const CostInput& input, int teams) {
  const int team_size = input.ranks / teams;
  const double block_bytes = input.coded_stream_bytes(input.nnz / team_size, input.dimension / team_size);
  return select_seconds(input, input.dimension) + patterns::bruck_rounds(team_size) * input.profile.alpha_seconds +
         (team_size - 1) * block_bytes * input.profile.beta_seconds_per_byte + merge_seconds(input, 2, input.nnz);
}

}  // namespace tulle
