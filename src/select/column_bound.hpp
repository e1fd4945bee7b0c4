// A key that at least k values reach, and few more, found by one pass without a sample.
//
// How it works. The values are laid out in rows of about 2k columns, and the largest key of each column is found. At
// least k values reach the k-th largest of these *maxima*, which is thus a bound; where large values lie anywhere,
// about 1.4k do. Where they lie in few columns more do, and at worst all of them.
#pragma once

#include "select/dense_input.hpp"
#include "select/key.hpp"

namespace tulle {

/// Whether the pass costs less than what it saves: there are many values to a column, and they stay in the cache.
bool column_bound_pays(const DenseInput& input, std::uint64_t k);

/// One pass, which also adds the addend. At least 1. REQUIRES: column_bound_pays(input, k).
Key column_bound(const DenseInput& input, Side side, std::uint64_t k);

}  // namespace tulle
