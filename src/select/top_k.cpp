#include "tulle/select/top_k.hpp"

#include <cassert>
#include <cmath>

#include "select/candidates.hpp"
#include "select/pack_selected.hpp"
#include "select/split.hpp"
#include "stream/dispatch.hpp"
#include "stream/pairs.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

DenseInput writable(ValueType type, std::byte* values, std::uint64_t dimension, Range range, int threads) {
  std::byte* const first = values + range.begin * size_of(type);
  return {.type = type, .dimension = dimension, .range = range, .values = first, .residual = first, .threads = threads};
}

template <class V>
DenseInput writable(std::span<V> values, Range range, int threads) {
  return writable(kValueTypeOf<V>, reinterpret_cast<std::byte*>(values.data()), values.size(), range, threads);
}

// What there is to split: the non-zeros of a dense stream, in the compute type.
AnyStream sparse_values(const AnyStream& stream) {
  if (!stream.is_dense()) return convert(stream, compute_type(stream.type()));
  return gather({.type = stream.type(),
                 .dimension = stream.dimension(),
                 .range = stream.range(),
                 .values = stream.values_buffer().data()},
                {.expected = stream.nnz()});
}

SplitStream stored_as(ValueType type, const SplitStream& split) {
  return {convert(split.kept, type), convert(split.rest, type)};
}

SplitStream split_phantom(const AnyStream& stream, std::uint64_t kept) {
  const auto part = [&](std::uint64_t nnz) {
    return AnyStream::phantom(stream.type(), stream.dimension(), stream.range(), Layout::sparse, nnz);
  };
  return {part(kept), part(stream.nnz() - kept)};
}

AnyStream take_top_k(const DenseInput& input, std::uint64_t k) {
  if (k == 0) return AnyStream::empty(input.type, input.dimension, input.range);
  const AnyStream taken =
      top_keys(gather_top_candidates(input, {.k = k, .non_finite = NonFinite::largest}), Side::both, k);
  clear_at(input, taken);
  return convert(taken, input.type);
}

AnyStream take_above(const DenseInput& input, double threshold) {
  assert(!std::isnan(threshold));
  const Key low = std::max<Key>(key_at_least(input.type, threshold), 1);
  return convert(gather(input, {.low = low, .leave = Leave::rest}), input.type);
}

// value + scale · addend, in the compute type C of V.
template <class V, class C>
V scaled_sum(V value, V addend, double scale) {
  const auto wide = static_cast<C>(addend);
  if (scale == 1) return static_cast<V>(CombineSum<C>()(static_cast<C>(value), wide));
  const double scaled = static_cast<double>(wide) * scale;
  const auto rounded = static_cast<C>(kIsFloat<C> ? scaled : std::round(scaled));
  return static_cast<V>(CombineSum<C>()(static_cast<C>(value), rounded));
}

template <class V>
using ComputeOf = std::conditional_t<sizeof(V) == 2, float, V>;

template <class V>
void add_values(V* values, const AnyStream& stream, double scale) {
  using C = ComputeOf<V>;
  if (stream.is_dense()) {
    V* const first = values + stream.range().begin;
    const std::span<const V> addends = stream.values_buffer().as<V>();
    for (std::size_t i = 0; i < addends.size(); ++i) first[i] = scaled_sum<V, C>(first[i], addends[i], scale);
    return;
  }
  visit_index_type(stream.dimension(), [&]<class I>() {
    const auto pairs = pairs_of<V, I>(stream);
    for (std::size_t i = 0; i < pairs.size; ++i) {
      V& value = values[pairs.indices[i]];
      value = scaled_sum<V, C>(value, pairs.values[i], scale);
    }
  });
}

}  // namespace

SplitStream split_top_k(const AnyStream& stream, std::uint64_t k) {
  if (stream.is_phantom()) return split_phantom(stream, std::min(k, stream.nnz()));
  return stored_as(stream.type(), split_top_keys(sparse_values(stream), Side::both, k));
}

SplitStream split_at_threshold(const AnyStream& stream, double threshold) {
  if (stream.is_phantom()) return split_phantom(stream, stream.nnz());
  assert(!std::isnan(threshold));
  const Key low = key_at_least(stream.type(), threshold);
  return stored_as(stream.type(), split_at_key(sparse_values(stream), Side::both, low, stream.nnz()));
}

double kth_magnitude(const AnyStream& stream, std::uint64_t k) {
  assert(k >= 1 && !stream.is_phantom());
  const AnyStream values = sparse_values(stream);
  if (k > values.nnz()) return 0;
  return magnitude_of(values.type(), kth_key(values, Side::both, k));
}

template <class V>
AnyStream take_top_k(std::span<V> values, Range range, std::uint64_t k, int threads) {
  return take_top_k(writable(values, range, threads), k);
}

template <class V>
AnyStream take_above(std::span<V> values, Range range, double threshold, int threads) {
  return take_above(writable(values, range, threads), threshold);
}

AnyStream take_top_k(ValueType type, Buffer& values, std::uint64_t dimension, Range range, std::uint64_t k,
                     int threads) {
  return take_top_k(writable(type, values.mutable_data(), dimension, range, threads), k);
}

AnyStream take_above(ValueType type, Buffer& values, std::uint64_t dimension, Range range, double threshold,
                     int threads) {
  return take_above(writable(type, values.mutable_data(), dimension, range, threads), threshold);
}

void add_into(ValueType type, Buffer& values, const AnyStream& stream, double scale) {
  assert(type == stream.type() && values.size() == stream.dimension() * size_of(type));
  if (stream.is_phantom()) return;
  visit_value_type(type, [&]<class V>() { add_values(values.as_mutable<V>().data(), stream, scale); });
}

#define TULLE_INSTANTIATE(name, V)                                        \
  template AnyStream take_top_k(std::span<V>, Range, std::uint64_t, int); \
  template AnyStream take_above(std::span<V>, Range, double, int);
TULLE_FOR_EACH_VALUE_TYPE(TULLE_INSTANTIATE)
#undef TULLE_INSTANTIATE

}  // namespace tulle
