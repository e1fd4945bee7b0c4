// Splitting sparse streams by key. Here streams hold compute types and real data.
#pragma once

#include <cstdint>

#include "select/key.hpp"
#include "tulle/select/top_k.hpp"

namespace tulle {

/// The k-th largest key. REQUIRES: 1 <= k <= nnz.
Key kth_key(const AnyStream& stream, Side side, std::uint64_t k);

/// REQUIRES: nnz >= 1.
Key least_key(const AnyStream& stream, Side side);

/// No pairs, over what `stream` covers.
AnyStream empty_like(const AnyStream& stream);

/// How many keys are at least `low`.
std::uint64_t count_at_least(const AnyStream& stream, Side side, Key low);

/// Keys above `low`, and the first `ties` of those equal to it, against the others.
SplitStream split_at_key(const AnyStream& stream, Side side, Key low, std::uint64_t ties);

/// The k largest keys, of equal ones the lower indices, against the others.
SplitStream split_top_keys(const AnyStream& stream, Side side, std::uint64_t k);

/// Those that split_top_keys() keeps, without the others.
AnyStream top_keys(const AnyStream& stream, Side side, std::uint64_t k);

}  // namespace tulle
