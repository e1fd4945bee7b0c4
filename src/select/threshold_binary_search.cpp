// threshold_binary_search: every value that reaches a threshold which k to 2k values reach (RedSync, Algorithm 3).
//
// How it works. The threshold is mean + ratio·(max − mean), and the ratio is searched in [0, 1] by halving: too many
// pass, go up; too few, go down. If fewer than k reach the mean, the search goes between 0 and the mean. It ends when k
// to 2k pass, or when the interval is so small that ties must be the reason; then its lower end is taken, and of more
// than 2k the 2k largest. (The paper stores the threshold in the ratio's bounds.)
//
// As in trimmed_top_k, counting goes over candidates, at least k, which one pass gathers; thresholds below their bound
// `low` are raised to it. A second pass takes the mean. Where a sign is asked for, values of the other one count as
// zeros, in the mean too.
#include <algorithm>

#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/split.hpp"
#include "select/sum_magnitudes.hpp"

namespace tulle {
namespace {

// Heavy tails have a maximum that is a million times the threshold. Thirty halvings suffice for that.
constexpr double kEpsilon = 0x1p-30;

struct Interval {
  double from;
  double to;
};

class Search {
 public:
  Search(const Candidates& candidates, const CandidateSpec& spec)
      : candidates_(candidates), side_(spec.side), k_(spec.k) {}

  Key find(double mean, double max) const { return passed(key_at(mean)) < k_ ? halve({0, mean}) : halve({mean, max}); }

 private:
  std::uint64_t passed(Key key) const { return count_at_least(candidates_.stream, side_, key); }
  Key key_at(double threshold) const {
    return std::max(key_at_least(candidates_.stream.type(), threshold), candidates_.low);
  }

  Key halve(Interval thresholds) const {
    const auto key_of_ratio = [&](double ratio) {
      return key_at(thresholds.from + ratio * (thresholds.to - thresholds.from));
    };
    Interval ratios{0, 1};
    while (ratios.to - ratios.from > kEpsilon && key_of_ratio(ratios.from) != key_of_ratio(ratios.to)) {
      const double ratio = ratios.from + (ratios.to - ratios.from) / 2;
      const Key key = key_of_ratio(ratio);
      const std::uint64_t count = passed(key);
      if (count >= k_ && count <= 2 * k_) return key;
      (count < k_ ? ratios.to : ratios.from) = ratio;
    }
    return key_of_ratio(ratios.from);
  }

  const Candidates& candidates_;
  Side side_;
  std::uint64_t k_;
};

}  // namespace

Selection threshold_binary_search(const DenseInput& input, const SelectOptions& options) {
  CandidateSpec spec = candidates_of(input, options, side_of(options.sign));
  spec.most = 2 * spec.k;
  const Candidates candidates = gather_candidates(input, spec);
  if (spec.k == 0 || candidates.stream.nnz() == 0) return taken(input, empty_like(candidates.stream), 0, 0);
  const double max = magnitude_of(input.type, kth_key(candidates.stream, spec.side, 1));
  const Key key = Search(candidates, spec).find(mean_magnitude(input.accumulated(), spec.side), max);
  const AnyStream passing = split_at_key(candidates.stream, spec.side, key, candidates.stream.nnz()).kept;
  const AnyStream selected = top_keys(passing, spec.side, 2 * spec.k);
  return taken(input, selected, magnitude_of(input.type, key), passing.nnz());
}

}  // namespace tulle
