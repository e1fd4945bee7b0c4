#include "collectives/cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/exchange.hpp"
#include "collectives/gather.hpp"
#include "collectives/index_choice.hpp"
#include "collectives/patterns/fold.hpp"
#include "comm/bruck.hpp"

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

namespace {

std::size_t index_width(const CostInput& input) { return static_cast<std::size_t>(input.index_bytes); }

double sparse_bytes(const CostInput& input, double stored, double extent, double bytes_per_value) {
  const double bits = IndexChoice(input.index_coding, input.profile).bits(stored / extent, index_width(input));
  return stored * (bytes_per_value + bits / 8);
}

}  // namespace

bool CostInput::is_sparse(double stored, double extent, double bytes_per_value) const {
  const IndexChoice choice(index_coding, profile);
  return stored <= 0 || (stored < extent && choice.is_sparse(stored / extent, bytes_per_value, index_width(*this)));
}

double CostInput::contribution_bytes(double stored, double extent) const {
  if (stored <= 0 || extent <= 0) return 0;
  return stored >= extent ? extent * value_bytes : sparse_bytes(*this, stored, extent, value_bytes);
}

double CostInput::stream_bytes(double stored, double extent) const {
  if (stored <= 0 || extent <= 0) return 0;
  return is_sparse(stored, extent) ? sparse_bytes(*this, stored, extent, value_bytes) : extent * value_bytes;
}

double CostInput::coded_stream_bytes(double stored, double extent) const {
  if (stored <= 0 || extent <= 0) return 0;
  return is_coded_sparse(stored, extent) ? sparse_bytes(*this, stored, extent, coded_value_bytes)
                                         : extent * coded_value_bytes;
}

double CostInput::coding_seconds(double stored, double extent) const {
  if (stored <= 0 || stored >= extent) return 0;
  const IndexChoice choice(index_coding, profile);
  return stored * choice.seconds(choice.for_density(stored / extent, index_width(*this)));
}

double coded_value_bytes(const ValueCodec& codec, ValueType type) {
  constexpr std::uint64_t kMany = 1 << 20;
  return static_cast<double>(encoded_value_bytes(codec, compute_type(type), kMany)) / kMany;
}

double layout_value_bytes(const ValueCodec& codec, ValueType type) {
  return keeps_zeros(codec.coding) ? coded_value_bytes(codec, type) : static_cast<double>(size_of(compute_type(type)));
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

double gather_seconds(const CostInput& input, double block_bytes, double decode_seconds) {
  const Profile& profile = input.profile;
  const double others = input.ranks - 1, wire = block_bytes * profile.beta_seconds_per_byte;
  if (!goes_around(profile, block_bytes, input.ranks)) {
    return patterns::bruck_rounds(input.ranks) * profile.alpha_seconds + others * (wire + decode_seconds);
  }
  const double hop = profile.alpha_seconds + wire;
  return others * std::max(hop, decode_seconds) + std::min(hop, decode_seconds);
}

// The partner of an extra rank is late in the rounds. Where at most every second has one, a late rank meets in some
// round one that is not, and has what that one sent already; but it came through the port beside the contribution.
double fold_seconds(const CostInput& input, double contribution_bytes, double first_bytes, double sum_bytes) {
  const int core = patterns::Fold(0, input.ranks).core_size(), extras = input.ranks - core;
  if (extras == 0) return 0;
  const double told = message_seconds(input.profile, contribution_bytes) + message_seconds(input.profile, sum_bytes);
  if (2 * extras > core) return told;
  return told + first_bytes * input.profile.beta_seconds_per_byte - input.profile.alpha_seconds;
}

double merge_seconds(const CostInput& input, double streams, double nnz) {
  return streams * nnz * input.profile.gamma_sparse_seconds;
}

double dense_seconds(const CostInput& input, double values) {
  if (input.dimension >= static_cast<double>(kDenseDimensionLimit)) return std::numeric_limits<double>::infinity();
  return values * input.profile.gamma_dense_seconds;
}

double dense_pair_seconds(const CostInput& input, double values) { return dense_seconds(input, 2 * values); }

double reduce_to_dense_seconds(const CostInput& input, double streams, double nnz, double extent) {
  if (nnz >= extent) return dense_seconds(input, streams * extent);
  return merge_seconds(input, streams, nnz) + dense_seconds(input, extent);
}

double reduce_seconds(const CostInput& input, double streams, double nnz, double extent, double sum_nnz,
                      double value_bytes) {
  if (nnz >= extent) return reduce_to_dense_seconds(input, streams, nnz, extent);
  const double pairs = streams * nnz;
  if (input.is_sparse(std::min(pairs, extent), extent, value_bytes)) return merge_seconds(input, streams, nnz);
  // What might become dense by its bound is counted, unless there are only two.
  const double counting = streams > 2 ? kCountingShare * merge_seconds(input, streams, nnz) : 0;
  const bool stays_sparse = streams > 2 && input.is_sparse(sum_nnz, extent, value_bytes);
  return counting +
         (stays_sparse ? merge_seconds(input, streams, nnz) : reduce_to_dense_seconds(input, streams, nnz, extent));
}

double join_seconds(const CostInput& input, double nnz) {
  return input.is_coded_sparse(nnz, input.dimension) ? merge_seconds(input, 1, nnz)
                                                     : dense_seconds(input, input.dimension);
}

double value_coding_seconds(const CostInput& input, double values) {
  return input.coded_value_bytes < input.value_bytes ? values * input.profile.gamma_dense_seconds : 0;
}

double densify_seconds(const CostInput& input) {
  return input.nnz >= input.dimension ? 0 : reduce_to_dense_seconds(input, 1, input.nnz, input.dimension);
}

double select_seconds(const CostInput& input, double values) { return values * input.profile.gamma_select_seconds; }

double scatter_top_k_seconds(const CostInput& input, int teams) {
  const int team_size = input.ranks / teams;
  const double block_bytes = input.coded_stream_bytes(input.nnz / team_size, input.dimension / team_size);
  return select_seconds(input, input.dimension) + patterns::bruck_rounds(team_size) * input.profile.alpha_seconds +
         (team_size - 1) * block_bytes * input.profile.beta_seconds_per_byte + merge_seconds(input, 2, input.nnz);
}

}  // namespace tulle
