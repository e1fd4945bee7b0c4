// trimmed_top_k: the k largest magnitudes, after trimming what lies below a threshold (RedSync, Algorithm 2).
//
// How it works. The threshold starts at mean + 0.8·(max − mean) and goes down by 0.2·(max − mean) until at least k
// pass; the k largest of those that do are selected. If even the mean lets fewer than k pass, all values take part.
// (The paper prints the loop's condition the wrong way round.)
//
// The paper counts over all data for every threshold. Here one pass gathers candidates, of which there are at least k
// and all that reach a key `low` (candidates.hpp); counting goes over them, which is exact for thresholds above `low`,
// and for the others low itself is a bound that at least k reach. A second pass takes the mean. The k largest of those
// that pass are the k largest candidates, so nothing need be trimmed in fact. Where a sign is asked for, values of the
// other one count as zeros, in the mean too.
#include <algorithm>

#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/split.hpp"
#include "select/sum_magnitudes.hpp"

namespace tulle {
namespace {

constexpr double kRatios[] = {0.8, 0.6, 0.4, 0.2, 0.0};

Key trimming_key(const Candidates& candidates, const CandidateSpec& spec, double mean, double max) {
  for (const double ratio : kRatios) {
    const Key key = std::max(key_at_least(candidates.stream.type(), mean + ratio * (max - mean)), candidates.low);
    if (count_at_least(candidates.stream, spec.side, key) >= spec.k) return key;
  }
  return candidates.low;
}

}  // namespace

Selection trimmed_top_k(const DenseInput& input, const SelectOptions& options) {
  const CandidateSpec spec = candidates_of(input, options, side_of(options.sign));
  const Candidates candidates = gather_candidates(input, spec);
  if (spec.k == 0 || candidates.stream.nnz() == 0) return taken(input, empty_like(candidates.stream), 0, 0);
  const double max = magnitude_of(input.type, kth_key(candidates.stream, spec.side, 1));
  const Key trim = trimming_key(candidates, spec, mean_magnitude(input.accumulated(), spec.side), max);
  const AnyStream selected = top_keys(candidates.stream, spec.side, spec.k);
  return taken(input, selected, magnitude_of(input.type, trim), count_at_least(candidates.stream, spec.side, trim));
}

}  // namespace tulle
