// threshold_filter: every value that reaches a known threshold, for example that of an earlier step (RedSync uses one
// for five).
//
// How it works. One pass marks the values that reach it, writes them out as pairs and, where there is a residual,
// clears them while they are in the cache. Where a cap is set and more pass, the `cap` largest are selected and the
// others put back; `passed` tells the caller that the threshold has grown stale.
#include <algorithm>

#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/split.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

AnyStream capped(const DenseInput& input, AnyStream passing, const SelectOptions& options) {
  if (options.cap == 0 || passing.nnz() <= options.cap) return passing;
  const SplitStream split = split_top_keys(passing, side_of(options.sign), options.cap);
  if (input.residual != nullptr) put_back(input, split.rest);
  return split.kept;
}

// Without those that the policy keeps out, which go back where they were.
AnyStream admitted(const DenseInput& input, const AnyStream& gathered, NonFinite policy) {
  const auto restore = [&] {
    if (input.residual != nullptr) put_back(input, gathered);
  };
  try {
    AnyStream rest = admit_non_finite(input, gathered, policy);
    if (rest.nnz() == gathered.nnz()) return rest;
    restore();
    if (input.residual != nullptr) clear_at(input, rest);
    return rest;
  } catch (const Error&) {
    restore();
    throw;
  }
}

}  // namespace

Selection threshold_filter(const DenseInput& input, const SelectOptions& options) {
  const Key low = std::max<Key>(key_at_least(input.type, *options.threshold), 1);
  const GatherSpec spec{.side = side_of(options.sign),
                        .low = low,
                        .expected = input.range.size() / 64,
                        .leave = input.residual != nullptr ? Leave::rest : Leave::all};
  const AnyStream passing = admitted(input, gather(input, spec), options.non_finite);
  const AnyStream selected = capped(input, passing, options);
  return {convert(selected, input.type), *options.threshold, passing.nnz()};
}

}  // namespace tulle
