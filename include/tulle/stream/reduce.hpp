// Operations on streams: combining, cutting, joining, changing layout and type.
//
// All of them keep one order of summation: the stream that comes first is the left operand, so that the result does
// not depend on which kernel was picked. Costs are given in *items*, which the simulator charges as computation.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

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

/// What a sum of streams may become.
enum class LayoutChoice {
  automatic,  ///< dense where the bound nnz(a) + nnz(b) passes delta; reduce_many() then counts, to be sure
  sparse,     ///< sparse unless an operand is dense
  dense,      ///< dense
};

/// A choice of layout; for the automatic one, where the line is drawn.
struct LayoutRule {
  LayoutChoice choice = LayoutChoice::automatic;
  double fill =
      0;  ///< automatic: sparse up to this share of the range; 0: delta(), the share at which raw pairs stop paying

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

/// lower ∘ higher over the same range. REQUIRES: equal type, dimension and range.
/// Where one operand is dense and its memory unshared, the sum is made in place. f16 and bf16 are summed in f32.
AnyStream reduce(AnyStream lower, AnyStream higher, const Op& op, KernelReport* report = nullptr, LayoutRule rule = {});

/// streams[0] ∘ streams[1] ∘ … from the left, in one pass over the data. REQUIRES: as reduce(), at least one stream.
/// A dense result is written to `landing` where that is given (REQUIRES: range.size() values).
AnyStream reduce_many(std::span<const AnyStream> streams, const Op& op, KernelReport* report = nullptr,
                      LayoutRule rule = {}, Buffer landing = {});

/// The part of `stream` inside `range`, sharing its memory. REQUIRES: range inside stream.range().
AnyStream slice(const AnyStream& stream, Range range);

/// Where a join shall be; empty ones: wherever.
struct JoinLanding {
  Buffer dense;    ///< all values of the whole range; where a dense result shall be
  Buffer indices;  ///< as many as the blocks have together; where a sparse result shall be
  Buffer values;
};

/// Joins adjacent blocks: the ranges must follow one another. The result is dense where a block is dense or where
/// delta says so, else sparse. Blocks that already lie in their place there stay.
AnyStream concatenate(std::span<const AnyStream> blocks, const Op& op, KernelReport* report = nullptr,
                      LayoutRule rule = {}, JoinLanding landing = {});

/// The dense form; absent values become the neutral element of `op`. Itself where already dense.
AnyStream to_dense(const AnyStream& stream, const Op& op, KernelReport* report = nullptr);
/// The sparse form: what is not, bit for bit, the neutral element of `op`. Itself where already sparse.
AnyStream to_sparse(const AnyStream& stream, const Op& op, KernelReport* report = nullptr);

/// The same stream in another value type of the same family (f16 and bf16 to f32 and back). Finite values that become
/// infinite are counted in `report->overflowed`.
AnyStream convert(const AnyStream& stream, ValueType type, KernelReport* report = nullptr);

/// The number of distinct indices expected in the union of sets of sizes a and b drawn uniformly from `extent`.
std::uint64_t expected_union(std::uint64_t a, std::uint64_t b, std::uint64_t extent);

}  // namespace tulle
