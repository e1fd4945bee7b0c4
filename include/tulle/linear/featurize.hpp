// Labelled lines of text as sparse rows, by hashing what occurs in them.
//
// Threads: the functions keep no state and may be called from any thread; `rows` by one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tulle/linear/text_format.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

enum class FeatureValue {
  binary,  ///< 1 for what occurs
  count,   ///< how often
  unit,    ///< counts, scaled so that every row has length 1, as webspam has
};
/// Throws bad_input that lists the allowed names.
FeatureValue feature_value_from(std::string_view name);

struct FeaturizeOptions {
  std::uint64_t dimension = std::uint64_t{1} << 24;
  bool trigrams = true;        ///< of bytes
  bool tokens = false;         ///< runs of letters and digits
  bool token_bigrams = false;  ///< two that follow one another
  FeatureValue value = FeatureValue::unit;
};

/// Appends the row of a line `label TAB text`, or nothing where it is empty. Features that hash to the same place are
/// one. O(n log n) for n features of the line. On a fault `rows` is as before. REQUIRES: dimension 1 to kMaxFeatures.
std::optional<LineFault> featurize_line(std::string_view line, const FeaturizeOptions& options, Rows& rows);

}  // namespace tulle::linear
#pragma GCC visibility pop
