// Times selectors against each other and against passes over the same data, after checking what they select.
//
// How it works. All *candidates* of a case take turns, each round beginning with another one, so that what disturbs the
// machine disturbs all. Rows are compared with `read_pass` (the sum of magnitudes) or, where they accumulate as well,
// with `accumulate` (residual += gradient), and with `nth_element`, std::nth_element on a copy that was made before.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.hpp"
#include "measure/comparison.hpp"
#include "measure/random_values.hpp"

namespace tulle::measure {

struct SelectorComparisonSpec {
  std::vector<std::string_view> selectors;     ///< names of rows
  std::vector<double> densities{0.001, 0.01};  ///< for rows that need k or a threshold
  std::vector<std::uint64_t> bucket_ks{1, 4, 16};
  int repeats = 7;
  int threads = 1;
  std::uint64_t seed = 1;
};

struct SelectorRow {
  std::string name;            ///< of the selector, or of a pass
  std::string detail;          ///< what was asked for
  std::string_view reference;  ///< the pass that `ratio` compares with; empty for a pass
  std::uint64_t selected = 0;
  Quartiles seconds;
  std::optional<double> ratio;        ///< time in units of the reference's
  std::optional<double> nth_element;  ///< how many times as long nth_element takes at that density
  std::string failure;                ///< empty: the check was passed
};

/// One case: a vector of `count` values.
std::vector<SelectorRow> compare_selectors(const SelectorComparisonSpec& spec, std::uint64_t count,
                                           Distribution distribution, Progress* progress = nullptr);

/// Steps of one case, for a progress line.
std::uint64_t rounds_of(const SelectorComparisonSpec& spec);

}  // namespace tulle::measure
