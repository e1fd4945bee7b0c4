// The sparse stream: a vector of N values of which only some are stored.
//
// Either *sparse*, two arrays of equal length with strictly increasing indices, or *dense*, all values of its range.
// Indices are 32 bits wide where N < 2^32 and 64 bits from there on. A stream covers a *range* of [0, N), by default
// all of it; collectives cut it into blocks. Indices are always positions in [0, N), so blocks are joined by
// concatenation.
//
// Threads: a stream may be read by several threads, and assigned to by one while no other uses it. Streams that share
// memory are as good as apart: what is shared is never written.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/value_type.hpp"
#include "tulle/stream/op.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// The positions from `begin` to before `end`. REQUIRES: begin <= end.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Numbers are part of the wire format: never renumber.
enum class Layout : std::uint8_t { sparse = 1, dense = 2 };

/// Bytes of an index into N values.
constexpr std::size_t index_bytes(std::uint64_t dimension) { return dimension < (std::uint64_t{1} << 32) ? 4 : 8; }

/// The most non-zeros for which raw (index, value) pairs are not larger than the dense form of `extent` values: δ.
constexpr std::uint64_t delta(std::uint64_t extent, std::uint64_t dimension, ValueType type) {
  const std::uint64_t value = size_of(type);
  const std::uint64_t pair = value + index_bytes(dimension);
  return extent / pair * value + extent % pair * value / pair;  // extent * value / pair, which may overflow
}

/// A stream whose value type is known at run time. Copies share memory; nothing that is shared is ever written.
class AnyStream {
 public:
  AnyStream() = default;

  /// No non-zeros in `range`.
  static AnyStream empty(ValueType type, std::uint64_t dimension, Range range);
  static AnyStream empty(ValueType type, std::uint64_t dimension) { return empty(type, dimension, {0, dimension}); }

  /// Takes buffers as they are. REQUIRES: `indices` holds index_bytes(dimension) each, strictly increasing and inside
  /// `range`; `values` as many of `type`. Nothing is checked here: see validate().
  static AnyStream sparse(ValueType type, std::uint64_t dimension, Range range, Buffer indices, Buffer values);
  /// REQUIRES: `values` holds range.size() values of `type`.
  static AnyStream dense(ValueType type, std::uint64_t dimension, Range range, Buffer values);
  /// `nnz` non-zeros that are only counted, for simulations larger than memory.
  static AnyStream phantom(ValueType type, std::uint64_t dimension, Range range, Layout layout, std::uint64_t nnz);

  ValueType type() const { return type_; }
  std::uint64_t dimension() const { return dimension_; }
  Range range() const { return range_; }
  Layout layout() const { return layout_; }
  bool is_dense() const { return layout_ == Layout::dense; }
  bool is_phantom() const { return phantom_; }
  /// Values stored: the range's size when dense.
  std::uint64_t nnz() const { return nnz_; }
  double density() const {
    return range_.size() == 0 ? 0.0 : static_cast<double>(nnz_) / static_cast<double>(range_.size());
  }
  std::size_t index_width() const { return index_bytes(dimension_); }
  /// Bytes of the arrays as they lie in memory.
  std::uint64_t bytes() const { return indices_.size() + values_.size(); }

  const Buffer& indices_buffer() const { return indices_; }
  const Buffer& values_buffer() const { return values_; }

  /// The stored index at position `i`. REQUIRES: sparse, no phantom, i < nnz().
  std::uint64_t index_at(std::uint64_t i) const;

  /// Throws bad_input naming the first position at which the indices are not strictly increasing or leave the range.
  /// One pass over the indices; nothing to do for dense streams and phantoms.
  void validate() const;

  /// A copy whose memory is its own where this one borrows.
  AnyStream to_owned() const;

  /// Same type, dimension, range, layout, indices and value bits.
  friend bool operator==(const AnyStream& a, const AnyStream& b);

 private:
  ValueType type_ = ValueType::f32;
  Layout layout_ = Layout::sparse;
  bool phantom_ = false;
  std::uint64_t dimension_ = 0;
  Range range_;
  std::uint64_t nnz_ = 0;
  Buffer indices_;
  Buffer values_;
};

template <class I>
concept StreamIndex = std::same_as<I, std::uint32_t> || std::same_as<I, std::uint64_t>;

/// A stream of V. Adds typed access and construction to AnyStream and no state of its own.
template <class V>
class Stream : public AnyStream {
 public:
  /// No non-zeros.
  explicit Stream(std::uint64_t dimension = 0) : AnyStream(AnyStream::empty(kValueTypeOf<V>, dimension)) {}
  /// Throws bad_input where the value type differs.
  explicit Stream(AnyStream stream);

  /// Copies strictly increasing indices and their values. Throws bad_input where they are not, or not as many.
  template <StreamIndex I>
  static Stream from_sorted(std::uint64_t dimension, std::span<const I> indices, std::span<const V> values);
  /// Copies pairs in any order and sorts them; values of the same index are combined by `op` in the order given. Throws
  /// bad_input for an index outside, or where `op` is not defined on V.
  template <StreamIndex I>
  static Stream from_pairs(std::uint64_t dimension, std::span<const I> indices, std::span<const V> values,
                           const Op& op = Op::sum());
  /// Copies everything that is not, bit for bit, the neutral element of `op`. Nothing is dropped for being small.
  static Stream from_dense(std::span<const V> values, const Op& op = Op::sum());
  /// Copies the values for which `keep(index, value)` holds, asked once for each, in order.
  static Stream from_predicate(std::span<const V> values, const std::function<bool(std::uint64_t, V)>& keep);
  /// Copies all values, dense.
  static Stream dense(std::span<const V> values);

  /// A view of the caller's memory, which must outlive the stream and its copies, unchanged. Checked like from_sorted,
  /// in one pass over the indices; throws bad_input also where sizeof(I) is not index_bytes(dimension).
  template <StreamIndex I>
  static Stream borrow_sorted(std::uint64_t dimension, std::span<const I> indices, std::span<const V> values);
  /// The same of a dense vector, without a pass.
  static Stream borrow_dense(std::span<const V> values);

  std::span<const V> values() const { return values_buffer().template as<V>(); }
  /// REQUIRES: sizeof(I) == index_width().
  template <StreamIndex I>
  std::span<const I> indices() const {
    return indices_buffer().template as<I>();
  }

  /// The value at `index`, or the neutral element of `op`. O(log nnz). Throws bad_input outside of the range.
  V at(std::uint64_t index, const Op& op = Op::sum()) const;
  /// All values of the range, copied; absent ones are the neutral element of `op`.
  std::vector<V> to_vector(const Op& op = Op::sum()) const;
};

}  // namespace tulle
#pragma GCC visibility pop
