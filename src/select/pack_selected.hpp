// The pass over the data that selectors have in common: everything whose key reaches a bound, as a sparse stream.
#pragma once

#include "select/dense_input.hpp"
#include "select/key.hpp"

namespace tulle {

enum class Leave {
  all,   ///< the residual is read only (and gets the addend)
  rest,  ///< what is gathered becomes 0 in the residual, in the same pass
};

struct GatherSpec {
  Side side = Side::both;
  Key low = 1;                 ///< REQUIRES: at least 1; zeros are never gathered
  std::uint64_t expected = 0;  ///< about how many will be found, to allocate for
  Leave leave = Leave::all;
};

/// The values with a key of at least `low`, in the input's *compute* type. One pass; the result does not depend on the
/// number of threads.
AnyStream gather(const DenseInput& input, const GatherSpec& spec);

/// Adds the addend of an input that stays in the cache, and gives what is left to read, so that a sample finds the sums
/// there. Of larger inputs, which it leaves alone, the first sums have been put out when the last are made, and each
/// would be read once more.
DenseInput added_while_cached(const DenseInput& input);

/// residual[i] = 0 for the indices of `stream`.
void clear_at(const DenseInput& input, const AnyStream& stream);
/// residual[i] = v for the pairs of `stream`, which is of the compute type.
void put_back(const DenseInput& input, const AnyStream& stream);

}  // namespace tulle
