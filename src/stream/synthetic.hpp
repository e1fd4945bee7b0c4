// Streams made from a seed, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <string_view>

#include "tulle/stream/stream.hpp"

namespace tulle {

/// How the indices of different ranks relate.
enum class Overlap {
  uniform,    ///< every rank draws its own, uniformly
  identical,  ///< all ranks hold the same
  disjoint,   ///< no index on two ranks; at most N/P on each
  zipf,       ///< every rank draws its own, low indices far more often: the i-th with weight 1/i
};
std::string_view to_string(Overlap overlap);
/// Throws bad_input that lists the allowed names.
Overlap overlap_from(std::string_view name);

enum class SyntheticValues {
  small_integers,  ///< non-zero, so small that sums over hundreds of ranks are exact in every value type
  gaussian_like,   ///< with full mantissas, so that the order of summation shows; integers stay small
};

struct SyntheticSpec {
  ValueType type = ValueType::f32;
  std::uint64_t dimension = 0;
  std::uint64_t nnz = 0;  ///< of each rank; less where that many distinct indices do not exist
  Overlap overlap = Overlap::uniform;
  SyntheticValues values = SyntheticValues::small_integers;
  int ranks = 1;
  int rank = 0;
  std::uint64_t seed = 1;
};

/// Always sparse, whatever its density.
AnyStream synthetic_stream(const SyntheticSpec& spec);

}  // namespace tulle
