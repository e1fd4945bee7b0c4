// Selectors: which coordinates of a dense vector to send.
//
// A selector takes a dense vector and k, a density or a threshold, and gives a sparse stream; the rest stays behind as
// the *residual*. None keeps state between calls. Values are compared by magnitude and of equal ones the lower index
// comes first; zeros are never selected. Results depend on the data and the options (seed and step among them) and on
// nothing else: not on the number of threads, not on the instruction set.
//
// Threads: any thread may select, from vectors that no other writes meanwhile. A call computes on up to
// SelectOptions::threads threads of TBB's and returns when all are done. docs/selectors.md compares what rows cost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What happens to NaN and infinity, which are found in the pass that a selector makes anyway.
enum class NonFinite {
  error,    ///< bad_input that names the first index
  largest,  ///< they are larger than any number, so they are selected first and other ranks see them
  skip,     ///< they are never selected and stay in the residual
};

enum class BucketForm {
  exact,       ///< the k largest of each bucket
  randomized,  ///< most of them, by (seed, step): faster, see docs/selectors.md
};

/// Values of another sign than asked for count as zeros. RedSync takes turns, so that what it selects has one sign and
/// a mean and the indices are all there is to send.
enum class Sign { any, positive, negative };

struct SelectOptions {
  std::optional<std::uint64_t> k = {};   ///< how many; bucketed_top_k: of each bucket
  std::optional<double> density = {};    ///< k as a share of the values, rounded up; used where k is not set
  std::optional<double> threshold = {};  ///< threshold_filter: the least magnitude
  /// The most that may pass; of more, threshold_filter selects the `cap` largest and sampled_top_k the k largest. 0: no
  /// cap for threshold_filter, 4k/3 for sampled_top_k.
  std::uint64_t cap = 0;
  Sign sign = Sign::any;       ///< of what is selected, for rows that say so
  std::uint64_t bucket = 512;  ///< bucketed_top_k: consecutive values of a bucket
  BucketForm form = BucketForm::exact;
  std::uint64_t seed = 0;  ///< of everything random, together with `step`
  std::uint64_t step = 0;
  int threads = 0;  ///< for large inputs; 0: TULLE_THREADS, or all processors
  NonFinite non_finite = NonFinite::error;
  double decay = 1;  ///< accumulate_and_select(): the residual is multiplied by it first; not of integers
};

struct Selection {
  AnyStream stream;          ///< sparse, over the whole vector
  double threshold = 0;      ///< the least magnitude that was let pass; 0 where there is no such bound
  std::uint64_t passed = 0;  ///< how many reached it, before a cap or a second selection
};

struct DenseInput;

enum class SelectorNeeds { k, threshold };
enum class SelectorSigns {
  own,    ///< as the row's summary says
  asked,  ///< as SelectOptions::sign says
};
enum class SelectorAccuracy {
  exact,        ///< what the name says, always
  approximate,  ///< about as many, or about the largest
};

/// A row of the registry. `run` is for select() and its like, which check the options first.
struct Selector {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
  SelectorAccuracy accuracy;
  SelectorNeeds needs;
  SelectorSigns signs;
  Selection (*run)(const DenseInput& input, const SelectOptions& options);
};

std::string_view to_string(SelectorNeeds needs);
std::string_view to_string(SelectorAccuracy accuracy);

/// All rows; they never change.
std::span<const Selector> selectors();
/// Throws bad_input that lists the names.
const Selector& selector_from(std::string_view name);

/// Selects from `values`; the result is a copy. Throws bad_input naming the option that is missing or out of bounds, or
/// the index of a value that is not finite (see NonFinite). As a rule one or two passes over the values.
template <class V>
Selection select(std::string_view selector, std::span<const V> values, const SelectOptions& options);

/// The same, and what is selected becomes +0 in `residual`. Where it throws, the residual is as it was.
template <class V>
Selection select_in_place(std::string_view selector, std::span<V> residual, const SelectOptions& options);

/// residual ← decay·residual + gradient, then select_in_place(), in one pass over the data where the selector makes
/// one. Where it throws for a value that is not finite, the residual holds the sum. REQUIRES: spans of equal size.
template <class V>
Selection accumulate_and_select(std::string_view selector, std::span<V> residual, std::span<const V> gradient,
                                const SelectOptions& options);

}  // namespace tulle
#pragma GCC visibility pop
