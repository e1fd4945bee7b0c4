// What the cost of a collective depends on.
//
// Threads: pure functions, for any thread. Each takes O(1) time and no memory.
#pragma once

#include <string_view>

#include "tulle/codec/value_coding.hpp"
#include "tulle/comm/profile.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Ranks that share a port between nodes.
inline double ranks_at_a_port(int ranks, int nodes) { return nodes > 1 ? static_cast<double>(ranks) / nodes : 1; }
/// The constants as one rank sees them: of a port that ranks share, each gets a part.
Profile profile_of_rank(Profile profile, int ranks, int nodes);

/// What a cost depends on. SparCML's symbols: P, N, k, K, isize, c; then α, β, γ.
struct CostInput {
  int ranks = 1;
  double dimension = 0;
  double nnz = 0;         ///< k: of one rank
  double result_nnz = 0;  ///< K: of the sum
  double value_bytes = 4;
  double index_bytes = 4;
  std::string_view index_coding = "raw";  ///< as in CallOptions; the text must outlive this
  double coded_value_bytes = 4;           ///< of a value as the value coding leaves it
  double layout_value_bytes = 4;          ///< of a value of a sum that is coded, where its layout is decided
  int teams = 1;
  int nodes = 1;       ///< that the ranks are on; P where each has its own
  Profile profile;     ///< β as a rank sees it: where ranks share a node's port, ranks_at_a_port() times the port's
  double overlap = 1;  ///< growth of unions as a share of that of uniform positions: 0 where all ranks' indices agree

  double ranks_at_a_port() const { return tulle::ranks_at_a_port(ranks, nodes); }
  /// Non-zeros expected in the sum of `count` ranks' contributions.
  double union_of(double count) const;
  /// Whether a sum of `count` non-zeros among `extent` values stays sparse; the second, where its values are coded
  /// before it travels.
  bool is_sparse(double count, double extent) const { return is_sparse(count, extent, value_bytes); }
  bool is_coded_sparse(double count, double extent) const { return is_sparse(count, extent, layout_value_bytes); }
  bool is_sparse(double nnz, double extent, double bytes_per_value) const;
  /// Bytes of a contribution, which keeps the layout that the caller gave it; indices coded as asked for.
  double contribution_bytes(double nnz, double extent) const;
  /// Bytes of a sum of `nnz` non-zeros among `extent` values in the layout that it gets.
  double stream_bytes(double nnz, double extent) const;
  /// The same once their values are coded.
  double coded_stream_bytes(double nnz, double extent) const;
  /// What coding those indices takes, at both ends together.
  double coding_seconds(double nnz, double extent) const;
};

/// Bytes of a value of `type` as `codec` leaves it, of many: parameters and scales at their front do not count.
double coded_value_bytes(const ValueCodec& codec, ValueType type);
/// The same where the layout of a sum is decided: the type's bytes where a dense form would lose the zeros.
double layout_value_bytes(const ValueCodec& codec, ValueType type);

}  // namespace tulle
#pragma GCC visibility pop
