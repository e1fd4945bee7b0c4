// Lower bounds on the time of a sparse allreduce, to hold costs against.
//
// Threads: pure functions, for any thread; O(1).
#pragma once

#include <string_view>
#include <vector>

#include "tulle/collectives/registry.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// No algorithm takes less, as far as what the bound assumes holds.
struct Bound {
  std::string_view name;
  std::string_view source;     ///< where it is proved
  std::string_view formula;    ///< in SparCML's symbols; βd is β times the bytes of a value
  std::string_view condition;  ///< when it applies
  double seconds = 0;
  bool applies = false;
};

/// δ: the most non-zeros for which raw pairs are not larger than the dense form.
double sparse_limit(const CostInput& input);

/// SparCML's Lemma 4.1 (both ends), Theorem 4.2, its Lemma 4.3 and the later 2/κ as the times at which they put the
/// ceiling of a speed-up over the best dense allreduce, and the entropy of what a rank does not know yet.
///
/// The bounds count words of values and none of indices, so no index coding passes Lemma 4.1. Theorem 4.2 and what
/// follows from it are about sums that are no smaller sparse than dense: more than δ with raw indices, more than that
/// where indices are coded. The theorem adds what a rank sends to what it receives, N·βd in all; a port does both at
/// once, and a rank need not receive the block that it owns: (P−1)/P·N·βd is left. REQUIRES: ranks >= 1, dimension > 0.
std::vector<Bound> lower_bounds(const CostInput& input);

}  // namespace tulle
#pragma GCC visibility pop
