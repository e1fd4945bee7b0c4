// The kernels behind reduce.hpp, resolved to types inside. Here streams hold compute types and real data.
//
// Every kernel computes, for each index, the left fold over the streams that hold it: the first of them *assigns*, the
// others combine. An absent index takes no part in the arithmetic, so a value that only one stream holds keeps its
// bits (-0.0, NaN payloads) whichever kernel ran, sparse or dense.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tulle/stream/reduction.hpp"

namespace tulle {

/// any_stream.cpp: "index 12 is outside [0, 10) of a stream with N = 10".
std::string outside_text(std::uint64_t index, Range range, std::uint64_t dimension);

/// any_stream.cpp: throws bad_input naming the first position at which `indices` do not increase strictly inside
/// `range`.
template <StreamIndex I>
void require_sorted(std::span<const I> indices, std::uint64_t dimension, Range range);

/// reduction.cpp: throws bad_input where types, dimensions or ranges differ, or `op` is not defined on the type.
void require_alike(std::span<const AnyStream> streams, const Op& op);

/// layout.cpp: the neutral element of `op` in `type` itself, which may be a 16-bit one.
ScalarBytes stored_neutral(const Op& op, ValueType type);

/// layout.cpp: memory for `count` dense values. Throws bad_input for a size that cannot be meant, system where memory
/// lacks.
Buffer allocate_dense(ValueType type, std::uint64_t count);

/// layout.cpp: writes all values of `stream` to `destination`, absent ones as the neutral element. Any value type.
void write_dense(const AnyStream& stream, const Op& op, std::byte* destination);

/// blocks.cpp: the first position whose index is not below `index`. REQUIRES: `stream` is sparse.
std::uint64_t position_of(const AnyStream& stream, std::uint64_t index);

/// merge.cpp: two sparse streams to one, without a branch per pair.
AnyStream merge(const AnyStream& lower, const AnyStream& higher, const Op& op);

/// merge_many.cpp: any number of sparse streams to one. The cost does not depend on the range.
AnyStream merge_many(std::span<const AnyStream> streams, const Op& op);

/// merge_many.cpp: pairs in any order to a sparse stream. REQUIRES: the indices are inside the range of `like`.
AnyStream sort_pairs(const AnyStream& like, Buffer indices, Buffer values, const Op& op);

/// accumulate.cpp: whether the range is full enough for accumulate_sparse() to be faster than merging.
bool prefers_tiles(std::span<const AnyStream> streams);

/// accumulate.cpp: whether sparse streams together hold more than `limit` distinct indices.
bool union_exceeds(std::span<const AnyStream> streams, std::uint64_t limit);

/// accumulate.cpp: any number of sparse streams to one, by way of dense tiles.
AnyStream accumulate_sparse(std::span<const AnyStream> streams, const Op& op);

/// accumulate.cpp: any streams to a dense one, written to `result` (range.size() values).
void accumulate_dense(std::span<const AnyStream> streams, const Op& op, std::byte* result);

/// combine_dense.cpp: result[i] = lower[i] ∘ higher[i]. `result` may be `lower`, and `higher` unless the op is the
/// user's.
void combine_dense(ValueType type, const Op& op, std::byte* result, const std::byte* lower, const std::byte* higher,
                   std::uint64_t count);

/// scatter.cpp: dense[i] = dense[i] ∘ sparse[i], or the other way round. `dense` holds the range of `sparse`.
enum class DenseSide { lower, higher };
void scatter(const AnyStream& sparse, const Op& op, std::byte* dense, DenseSide side);

/// convert.cpp: `count` values from one type to another. Returns how many finite ones became infinite.
/// REQUIRES: the types are equal, or one is f32 and the other a 16-bit one.
std::uint64_t convert_values(ValueType from, const std::byte* source, ValueType to, std::byte* destination,
                             std::uint64_t count);

}  // namespace tulle
