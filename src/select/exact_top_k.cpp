// exact_top_k: the k largest magnitudes, of equal ones the lower indices.
//
// How it works. One pass gathers *candidates*: values that reach a key at which a sample, or for small inputs a pass
// over them, suggests that a little more than k do (candidates.hpp; this decides the cost, never the result). A radix
// selection among the candidates finds the k-th largest key; those above it, and the first of those equal to it, are
// kept.
//
// Cost: one pass over the data, two where it stays in the cache or most values are equal, and about 2k pairs.
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/split.hpp"

namespace tulle {

Selection select_top_k(const DenseInput& input, const SelectOptions& options, Side side) {
  const CandidateSpec spec = candidates_of(input, options, side);
  const AnyStream selected = top_keys(gather_top_candidates(input, spec), side, spec.k);
  const Key least = selected.nnz() == 0 ? 0 : least_key(selected, side);
  return taken(input, selected, magnitude_of(input.type, least), selected.nnz());
}

Selection exact_top_k(const DenseInput& input, const SelectOptions& options) {
  return select_top_k(input, options, side_of(options.sign));
}

}  // namespace tulle
