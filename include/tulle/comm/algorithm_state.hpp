// What is known from earlier calls of the same collective.
#pragma once

#include <cstdint>

namespace tulle {

/// Kept between calls by the caller, or by the communicator for blocking calls, so that the next call knows what to
/// expect. Equal on all ranks, because it is made from results alone. Collectives themselves keep nothing.
struct AlgorithmState {
  std::uint64_t calls = 0;
  double nnz_per_rank = 0;  ///< mean over ranks, of the last call
  double result_nnz = 0;    ///< of the last call
};

}  // namespace tulle
