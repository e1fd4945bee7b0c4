// sampled_top_k: about the k largest magnitudes, by a threshold taken from a sample (Deep Gradient Compression).
//
// How it works. A sample of about one value in a thousand, drawn by (seed, step), is sorted; the value at the rank that
// corresponds to k is the *threshold*; one pass takes what reaches it. Where more than `cap` do (by default 4k/3), a
// second selection among those takes the k largest. Fewer than k are let pass as they are: how many varies with the
// sample, by about k/8.
#include <algorithm>

#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/split.hpp"

namespace tulle {
namespace {

constexpr std::uint64_t kSampledOneIn = 1000;

Key sampled_key(const DenseInput& input, const CandidateSpec& spec) {
  const std::uint64_t count = input.range.size();
  if (spec.k == 0) return first_non_finite(input.type);
  const KeySample sample(input, spec, std::max(KeySample::default_size(count), count / kSampledOneIn));
  const auto share = static_cast<double>(spec.k) / static_cast<double>(count);
  return sample.at_rank(static_cast<std::size_t>(share * static_cast<double>(sample.size())));
}

}  // namespace

Selection sampled_top_k(const DenseInput& input, const SelectOptions& options) {
  const CandidateSpec spec = candidates_of(input, options, Side::both);
  const std::uint64_t cap = options.cap != 0 ? options.cap : spec.k + spec.k / 3;
  const DenseInput unread = added_while_cached(input);
  const Key low = sampled_key(unread, spec);
  const AnyStream passing =
      admit_non_finite(input, gather(unread, {.low = low, .expected = spec.k + spec.k / 2}), spec.non_finite);
  const AnyStream selected = passing.nnz() > cap ? top_keys(passing, Side::both, spec.k) : passing;
  return taken(input, selected, magnitude_of(input.type, low), passing.nnz());
}

}  // namespace tulle
