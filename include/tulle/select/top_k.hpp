// The largest values of streams and dense vectors, for collectives that select while they communicate.
//
// Values are compared by magnitude; of equal ones the lower index comes first, so every result is a function of the
// data alone. NaN and infinity count as the largest magnitudes here: they are passed on, so that all ranks see them.
// The selectors of selector.hpp, which look at a rank's own data, report them.
//
// Threads: the functions keep no state and may be called from any thread, on vectors that no other thread uses; those
// with `threads` compute on up to so many of TBB's (0: TULLE_THREADS, or all processors).
#pragma once

#include <cstdint>
#include <span>

#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// A stream split by magnitude. Both parts are sparse and keep type, dimension, range and order.
struct SplitStream {
  AnyStream kept;
  AnyStream rest;
};

/// The k largest, and all others. Zeros of a dense stream are in neither part. A phantom splits into phantoms.
/// O(nnz); of a dense stream, one more pass over the range.
SplitStream split_top_k(const AnyStream& stream, std::uint64_t k);

/// The values with |value| >= threshold, and all others. O(nnz). A phantom keeps everything: its values are not known.
/// REQUIRES: threshold is not NaN.
SplitStream split_at_threshold(const AnyStream& stream, double threshold);

/// The k-th largest magnitude; 0 where there are fewer than k non-zeros. O(nnz). REQUIRES: k >= 1; no phantom.
double kth_magnitude(const AnyStream& stream, std::uint64_t k);

/// Takes the k largest values of `range` out of `values`, a vector of N = values.size(), leaving +0 in their place.
/// Zeros are never taken. About one pass over the range. `threads` does not change the result. REQUIRES: range inside
/// N.
template <class V>
AnyStream take_top_k(std::span<V> values, Range range, std::uint64_t k, int threads = 1);

/// Takes every value of `range` with |value| >= threshold, except zeros. One pass. REQUIRES: threshold is not NaN;
/// range inside N.
template <class V>
AnyStream take_above(std::span<V> values, Range range, double threshold, int threads = 1);

/// The same on a buffer of N = `dimension` values of `type`. REQUIRES: values.is_unique().
AnyStream take_top_k(ValueType type, Buffer& values, std::uint64_t dimension, Range range, std::uint64_t k,
                     int threads = 1);
AnyStream take_above(ValueType type, Buffer& values, std::uint64_t dimension, Range range, double threshold,
                     int threads = 1);

/// values[i] += scale · v for every pair of `stream`, sparse or dense, to give back what was taken. O(nnz). f16 and
/// bf16 are computed in f32; integers are scaled in f64 and rounded. A phantom adds nothing. REQUIRES: `values` holds
/// stream.dimension() values of `type`, and is_unique(); the stream is of `type`.
void add_into(ValueType type, Buffer& values, const AnyStream& stream, double scale = 1.0);

}  // namespace tulle
#pragma GCC visibility pop
