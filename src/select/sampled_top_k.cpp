// sampled_top_k: about the k largest magnitudes, by a threshold taken from a sample (Deep Gradient Compression).
//
// How it works. A sample of about one value in a thousand, drawn by (seed, step), is sorted; the value at a rank a
// little below the one that corresponds to k is the *threshold*; one pass takes what reaches it. Where more than `cap`
// do (by default 4k/3), a second selection among those takes the k largest. Fewer than k are let pass as they are;
// where they are fewer than 3k/4 the sample has misled, and the pass is repeated with a lower threshold. Of inputs that
// are too small to sample the k largest are taken.
#include <algorithm>
#include <cmath>

#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/split.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kSampledOneIn = 1000;

// The mean and one deviation and a half: with the mean alone half of all draws would let fewer than k pass, and no draw
// more than the cap.
std::size_t rank_below(std::size_t sample, std::uint64_t count, std::uint64_t k) {
  const double mean = static_cast<double>(sample) * static_cast<double>(k) / static_cast<double>(count);
  return static_cast<std::size_t>(mean + 1.5 * std::sqrt(mean));
}

/// What reaches the threshold, and that.
Candidates gather_by_sample(const DenseInput& input, const CandidateSpec& spec) {
  const std::uint64_t count = input.range.size();
  DenseInput unread = added_while_cached(input);
  const KeySample sample(unread, spec, std::max(KeySample::default_size(count), count / kSampledOneIn));
  for (std::size_t rank = rank_below(sample.size(), count, spec.k);; rank = 2 * rank + 1) {
    const Key low = sample.at_rank(rank);
    AnyStream passing = admit_non_finite(input, gather(unread, {.low = low, .expected = 2 * spec.k}), spec.non_finite);
    if (4 * passing.nnz() >= 3 * spec.k || low == 1) return {std::move(passing), low};
    unread = input.accumulated();
  }
}

}  // namespace

Selection sampled_top_k(const DenseInput& input, const SelectOptions& options) {
  const CandidateSpec spec = candidates_of(input, options, Side::both);
  if (spec.k == 0 || !is_sampled(input)) return select_top_k(input, options, Side::both);
  const std::uint64_t cap = options.cap != 0 ? options.cap : spec.k + spec.k / 3;
  const auto [passing, low] = gather_by_sample(input, spec);
  const AnyStream selected = passing.nnz() > cap ? top_keys(passing, Side::both, spec.k) : passing;
  return taken(input, selected, magnitude_of(input.type, low), passing.nnz());
}

}  // namespace tulle
