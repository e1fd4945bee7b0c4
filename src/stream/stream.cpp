#include "tulle/stream/stream.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

template <class I, class V>
void require_equal_lengths(std::span<const I> indices, std::span<const V> values) {
  if (indices.size() == values.size()) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} indices but {} values", indices.size(), values.size()));
}

template <class I>
void require_below(std::span<const I> indices, std::uint64_t dimension) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < dimension) continue;
    throw Error(ErrorKind::bad_input,
                fmt::format("position {}: {}", i, outside_text(indices[i], {0, dimension}, dimension)));
  }
}

/// A copy in the index width of `dimension`. REQUIRES: all below `dimension`.
template <class I>
Buffer copy_indices(std::uint64_t dimension, std::span<const I> indices) {
  if (sizeof(I) == index_bytes(dimension)) return Buffer::copy_of(std::as_bytes(indices));
  Buffer copy = Buffer::allocate(indices.size() * index_bytes(dimension));
  visit_index_type(dimension, [&]<class Stored>() {
    std::transform(indices.begin(), indices.end(), copy.as_mutable<Stored>().begin(),
                   [](I index) { return static_cast<Stored>(index); });
  });
  return copy;
}

template <class V>
Buffer copy_values(std::span<const V> values) {
  return Buffer::copy_of(std::as_bytes(values));
}

}  // namespace

template <class V>
Stream<V>::Stream(AnyStream stream) : AnyStream(std::move(stream)) {
  if (type() == kValueTypeOf<V>) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("a stream of {} where one of {} is needed", to_string(type()), to_string(kValueTypeOf<V>)));
}

template <class V>
template <StreamIndex I>
Stream<V> Stream<V>::from_sorted(std::uint64_t dimension, std::span<const I> indices, std::span<const V> values) {
  require_equal_lengths(indices, values);
  require_sorted(indices, dimension, {0, dimension});
  return Stream(AnyStream::sparse(kValueTypeOf<V>, dimension, {0, dimension}, copy_indices(dimension, indices),
                                  copy_values(values)));
}

template <class V>
template <StreamIndex I>
Stream<V> Stream<V>::from_pairs(std::uint64_t dimension, std::span<const I> indices, std::span<const V> values,
                                const Op& op) {
  require_equal_lengths(indices, values);
  require_below(indices, dimension);
  op.require_defined_on(kValueTypeOf<V>);
  constexpr ValueType kCompute = compute_type(kValueTypeOf<V>);
  Buffer computed = Buffer::allocate(values.size() * size_of(kCompute));
  convert_values(kValueTypeOf<V>, reinterpret_cast<const std::byte*>(values.data()), kCompute, computed.mutable_data(),
                 values.size());
  const AnyStream sorted =
      sort_pairs(AnyStream::empty(kCompute, dimension), copy_indices(dimension, indices), std::move(computed), op);
  return Stream(convert(sorted, kValueTypeOf<V>));
}

template <class V>
Stream<V> Stream<V>::from_dense(std::span<const V> values, const Op& op) {
  return Stream(to_sparse(borrow_dense(values), op));
}

template <class V>
Stream<V> Stream<V>::from_predicate(std::span<const V> values, const std::function<bool(std::uint64_t, V)>& keep) {
  PoolVector<std::uint64_t> kept_indices;
  PoolVector<V> kept_values;
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    if (!keep(i, values[i])) continue;
    kept_indices.push_back(i);
    kept_values.push_back(values[i]);
  }
  return from_sorted(values.size(), std::span<const std::uint64_t>(kept_indices), std::span<const V>(kept_values));
}

template <class V>
Stream<V> Stream<V>::dense(std::span<const V> values) {
  return Stream(AnyStream::dense(kValueTypeOf<V>, values.size(), {0, values.size()}, copy_values(values)));
}

template <class V>
template <StreamIndex I>
Stream<V> Stream<V>::borrow_sorted(std::uint64_t dimension, std::span<const I> indices, std::span<const V> values) {
  if (sizeof(I) != index_bytes(dimension)) {
    throw Error(ErrorKind::bad_input, fmt::format("indices of {} bytes cannot be borrowed where N = {} needs {} bytes",
                                                  sizeof(I), dimension, index_bytes(dimension)));
  }
  require_equal_lengths(indices, values);
  require_sorted(indices, dimension, {0, dimension});
  return Stream(AnyStream::sparse(kValueTypeOf<V>, dimension, {0, dimension}, Buffer::borrow(std::as_bytes(indices)),
                                  Buffer::borrow(std::as_bytes(values))));
}

template <class V>
Stream<V> Stream<V>::borrow_dense(std::span<const V> values) {
  return Stream(
      AnyStream::dense(kValueTypeOf<V>, values.size(), {0, values.size()}, Buffer::borrow(std::as_bytes(values))));
}

template <class V>
V Stream<V>::at(std::uint64_t index, const Op& op) const {
  if (index < range().begin || index >= range().end) {
    throw Error(ErrorKind::bad_input, outside_text(index, range(), dimension()));
  }
  if (is_dense()) return values()[index - range().begin];
  const std::uint64_t position = position_of(*this, index);
  if (position < nnz() && index_at(position) == index) return values()[position];
  return scalar_from<V>(stored_neutral(op, type()));
}

template <class V>
std::vector<V> Stream<V>::to_vector(const Op& op) const {
  std::vector<V> all(range().size());
  write_dense(*this, op, reinterpret_cast<std::byte*>(all.data()));
  return all;
}

#define TULLE_INSTANTIATE_INDEX(V, I)                                                                         \
  template Stream<V> Stream<V>::from_sorted(std::uint64_t, std::span<const I>, std::span<const V>);           \
  template Stream<V> Stream<V>::from_pairs(std::uint64_t, std::span<const I>, std::span<const V>, const Op&); \
  template Stream<V> Stream<V>::borrow_sorted(std::uint64_t, std::span<const I>, std::span<const V>);
#define TULLE_INSTANTIATE(name, V)          \
  template class Stream<V>;                 \
  TULLE_INSTANTIATE_INDEX(V, std::uint32_t) \
  TULLE_INSTANTIATE_INDEX(V, std::uint64_t)
TULLE_FOR_EACH_VALUE_TYPE(TULLE_INSTANTIATE)
#undef TULLE_INSTANTIATE
#undef TULLE_INSTANTIATE_INDEX

}  // namespace tulle
