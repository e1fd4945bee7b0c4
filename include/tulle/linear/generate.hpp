// Data from a seed that looks like the sets of SparCML's Table 1.
//
// Threads: pure functions, for any thread: parts of a set can be made at the same time.
#pragma once

#include <cstdint>
#include <string_view>

#include "tulle/linear/rows.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

/// Features are drawn by a power law: the j-th most frequent with weight 1/j, scattered over the dimension as hashing
/// would. All but the most frequent occur somewhat more often in rows of one of the classes −1 and 1, so that the rows
/// are as good as separable but for the noise.
struct GenerateOptions {
  std::uint64_t features = 3'231'961;
  std::uint64_t used_features = 0;  ///< that can occur at all; 0: all
  double nonzeros_per_row = 115;    ///< on average; rows have half to one and a half times as many
  bool is_binary = true;            ///< else counts, scaled so that every row has length 1
  double noise = 0.02;              ///< share of labels that are turned round
  std::uint64_t seed = 1;
};

/// "url" has 3,231,961 features, 115 of them in a row, all ones. "webspam" has 16,609,143, of which 680,715 can occur
/// and 3,730 are in a row, as counts scaled to length 1. Throws bad_input that lists the names.
GenerateOptions generate_like(std::string_view name);

/// Rows [first, first + count) of the endless set that the options describe; each depends on its number alone. Throws
/// bad_input for options out of bounds.
Rows generate_rows(const GenerateOptions& options, std::uint64_t first, std::uint64_t count);

}  // namespace tulle::linear
#pragma GCC visibility pop
