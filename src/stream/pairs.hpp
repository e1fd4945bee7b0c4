// Index and value arrays as the kernels see them: views to read, and buffers to write a sparse result into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tulle/stream/stream.hpp"

namespace tulle {

/// Pairs to read, in strictly increasing order of index unless said otherwise.
template <class V, class I>
struct PairsView {
  const I* indices = nullptr;
  const V* values = nullptr;
  std::size_t size = 0;

  PairsView from(std::size_t first) const { return {indices + first, values + first, size - first}; }
  PairsView first(std::size_t count) const { return {indices, values, count}; }
};

/// REQUIRES: `stream` is sparse and holds V and I.
template <class V, class I>
PairsView<V, I> pairs_of(const AnyStream& stream) {
  return {stream.indices_buffer().as<I>().data(), stream.values_buffer().as<V>().data(), stream.nnz()};
}

/// Where pairs are written.
template <class V, class I>
struct PairsTarget {
  I* indices = nullptr;
  V* values = nullptr;

  PairsTarget from(std::size_t first) const { return {indices + first, values + first}; }
};

/// Copies to a place that may overlap with the source.
template <class V, class I>
void copy_pairs(PairsView<V, I> from, PairsTarget<V, I> to) {
  if (from.size == 0 || from.indices == to.indices) return;
  std::memmove(to.indices, from.indices, from.size * sizeof(I));
  std::memmove(to.values, from.values, from.size * sizeof(V));
}

/// Memory for a sparse result of at most `capacity` pairs.
template <class V, class I>
class PairsBuffer {
 public:
  explicit PairsBuffer(std::size_t capacity)
      : indices_(Buffer::allocate(capacity * sizeof(I))), values_(Buffer::allocate(capacity * sizeof(V))) {}

  PairsTarget<V, I> target() {
    return {reinterpret_cast<I*>(indices_.mutable_data()), reinterpret_cast<V*>(values_.mutable_data())};
  }
  PairsView<V, I> view(std::size_t count) const {
    return {reinterpret_cast<const I*>(indices_.data()), reinterpret_cast<const V*>(values_.data()), count};
  }

  /// The first `nnz` pairs as a stream that covers what `like` covers.
  AnyStream to_stream(const AnyStream& like, std::size_t nnz) && {
    return AnyStream::sparse(like.type(), like.dimension(), like.range(), fitted(indices_, nnz * sizeof(I)),
                             fitted(values_, nnz * sizeof(V)));
  }

 private:
  // Streams live long and are shared: one that holds less than half of its block would waste the rest.
  static Buffer fitted(const Buffer& buffer, std::size_t bytes) {
    const Buffer used = buffer.slice(0, bytes);
    return bytes < buffer.size() / 2 ? Buffer::copy_of(used.bytes()) : used;
  }

  Buffer indices_;
  Buffer values_;
};

}  // namespace tulle
