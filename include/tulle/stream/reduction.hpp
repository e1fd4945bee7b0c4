// Operations on streams: combining, cutting, joining, changing layout and type.
//
// All of them keep one order of summation: the stream that comes first is the left operand, so that the result does
// not depend on which kernel was picked. Costs are given in *items*, which the simulator charges as computation.
//
// Threads: the functions keep no state, compute on the calling thread and may be called from any; a report is written
// by one at a time. They throw bad_input where an op is not defined on the streams' type, and where the dense form of a
// result takes more than 2^40 bytes; system where there is no memory for it. Arguments by reference are left as they
// were.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What a kernel did: items touched in sparse and in dense form, and results that no longer fit their 16-bit type.
struct KernelReport {
  std::uint64_t sparse_items = 0;
  std::uint64_t dense_items = 0;
  std::uint64_t overflowed = 0;

  KernelReport& operator+=(const KernelReport& other) {
    sparse_items += other.sparse_items;
    dense_items += other.dense_items;
    overflowed += other.overflowed;
    return *this;
  }
};

/// Of the time that a kernel takes to sum a pair, what it takes to look at its index alone.
inline constexpr double kCountingShare = 1.0 / 3;

/// What a sum of streams may become.
enum class LayoutChoice {
  automatic,  ///< dense where the bound nnz(a) + nnz(b) passes delta; reduce_many() then counts, to be sure
  sparse,     ///< sparse unless an operand is dense
  dense,      ///< dense
};

/// A choice of layout; for the automatic one, where the line is drawn.
struct LayoutRule {
  LayoutChoice choice = LayoutChoice::automatic;
  /// Automatic: sums stay sparse up to this share of the range. 0 means delta(), where raw pairs stop paying.
  double fill = 0;

  constexpr LayoutRule() = default;
  constexpr LayoutRule(LayoutChoice chosen) : choice(chosen) {}
  static constexpr LayoutRule sparse_up_to(double fill) {
    LayoutRule rule;
    rule.fill = fill;
    return rule;
  }
  /// The most non-zeros that stay sparse under the automatic choice.
  std::uint64_t most_sparse(std::uint64_t extent, std::uint64_t dimension, ValueType type) const;
};

/// lower ∘ higher over the same range. Throws bad_input unless type, dimension and range are equal. One pass over both.
/// Where one operand is dense and its memory unshared, the sum is made in place. f16 and bf16 are summed in f32.
AnyStream reduce(AnyStream lower, AnyStream higher, const Op& op, KernelReport* report = nullptr, LayoutRule rule = {});

/// streams[0] ∘ streams[1] ∘ … from the left, in one pass over the data. Throws as reduce(). REQUIRES: a stream.
/// A dense result is written to `landing` where that is given (REQUIRES: range.size() values). Where more than two
/// streams might together pass the rule's line, their indices are counted first: kCountingShare of a pair for each.
AnyStream reduce_many(std::span<const AnyStream> streams, const Op& op, KernelReport* report = nullptr,
                      LayoutRule rule = {}, Buffer landing = {});

/// The part of `stream` inside `range`, sharing its memory. O(log nnz). REQUIRES: range inside stream.range().
AnyStream slice(const AnyStream& stream, Range range);

/// Memory that a join is to be written to. Where a buffer is empty, new memory is taken.
struct JoinLanding {
  Buffer dense;    ///< for a dense result: room for all values of the whole range
  Buffer indices;  ///< for a sparse result: room for as many as the blocks have together
  Buffer values;   ///< the same
};

/// Joins adjacent blocks. Throws bad_input where a range does not begin where the one before ends, or types differ. The
/// result is dense where a block is dense or where the rule says so, else sparse. Each block is copied once, unless it
/// lies in its place already or is the only one with non-zeros. Dense blocks are reported only where no dense landing
/// is given: whoever gives one receives them there. REQUIRES: at least one block; landings of the right sizes.
AnyStream concatenate(std::span<const AnyStream> blocks, const Op& op, KernelReport* report = nullptr,
                      LayoutRule rule = {}, JoinLanding landing = {});

/// The dense form; absent values become the neutral element of `op`. Itself where already dense. One pass over the
/// range.
AnyStream to_dense(const AnyStream& stream, const Op& op, KernelReport* report = nullptr);
/// The sparse form: what is not, bit for bit, the neutral element of `op`. Itself where already sparse. Two passes over
/// the range, the first of which counts.
AnyStream to_sparse(const AnyStream& stream, const Op& op, KernelReport* report = nullptr);

/// The same stream in another value type: f16 or bf16 to f32 and back; bad_input for other pairs. One pass over the
/// values; indices are shared. Finite values that become infinite are counted in `report->overflowed`.
AnyStream convert(const AnyStream& stream, ValueType type, KernelReport* report = nullptr);

/// The root of the sum of squares, in f64; 0 where the stream is empty or a phantom. The same bits on every processor.
double l2_norm(const AnyStream& stream);

/// For each index the mean over the streams that hold it, each multiplied by its factor: Σ factor·value / their number.
/// Summed in f64 in the order of the streams and rounded once. Dense where a stream is dense, which holds every index,
/// else sparse. One pass over the data; the cost does not depend on the range. Throws bad_input for integers.
/// REQUIRES: as reduce(), at least one stream, as many factors; f32 streams use factors as rounded to f32.
AnyStream mean_of_holders(std::span<const AnyStream> streams, std::span<const double> factors,
                          KernelReport* report = nullptr);

/// The number of distinct indices expected in the union of sets of sizes a and b drawn uniformly from `extent`.
std::uint64_t expected_union(std::uint64_t a, std::uint64_t b, std::uint64_t extent);

}  // namespace tulle
#pragma GCC visibility pop
