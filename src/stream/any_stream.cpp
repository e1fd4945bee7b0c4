#include <fmt/format.h>

#include <cassert>
#include <cstring>

#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"

namespace tulle {
namespace {

// Without an early exit, so that it runs at the speed of memory.
template <class I>
bool is_valid_order(std::span<const I> indices, Range range) {
  if (indices.empty()) return true;
  bool disorder = false;
  for (std::size_t i = 1; i < indices.size(); ++i) disorder |= indices[i] <= indices[i - 1];
  return !disorder && indices.front() >= range.begin && indices.back() < range.end;
}

template <class I>
[[noreturn]] void throw_first_fault(std::span<const I> indices, std::uint64_t dimension, Range range) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < range.begin || indices[i] >= range.end) {
      throw Error(ErrorKind::bad_input, fmt::format("position {}: {}", i, outside_text(indices[i], range, dimension)));
    }
    if (i > 0 && indices[i] <= indices[i - 1]) {
      throw Error(ErrorKind::bad_input,
                  fmt::format("position {}: index {} follows index {}, but indices must increase strictly (N = {})", i,
                              indices[i], indices[i - 1], dimension));
    }
  }
  __builtin_unreachable();
}

bool same_bytes(const Buffer& a, const Buffer& b) {
  if (a.size() != b.size()) return false;
  if (a.empty() || a.is_phantom() || a.data() == b.data()) return true;
  return std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::string outside_text(std::uint64_t index, Range range, std::uint64_t dimension) {
  return fmt::format("index {} is outside [{}, {}) of a stream with N = {}", index, range.begin, range.end, dimension);
}

template <StreamIndex I>
void require_sorted(std::span<const I> indices, std::uint64_t dimension, Range range) {
  if (!is_valid_order(indices, range)) throw_first_fault(indices, dimension, range);
}
template void require_sorted(std::span<const std::uint32_t>, std::uint64_t, Range);
template void require_sorted(std::span<const std::uint64_t>, std::uint64_t, Range);

AnyStream AnyStream::empty(ValueType type, std::uint64_t dimension, Range range) {
  return sparse(type, dimension, range, {}, {});
}

AnyStream AnyStream::sparse(ValueType type, std::uint64_t dimension, Range range, Buffer indices, Buffer values) {
  assert(range.begin <= range.end && range.end <= dimension);
  assert(indices.size() / index_bytes(dimension) == values.size() / size_of(type));
  AnyStream stream;
  stream.type_ = type;
  stream.phantom_ = values.is_phantom();
  stream.dimension_ = dimension;
  stream.range_ = range;
  stream.nnz_ = values.size() / size_of(type);
  stream.indices_ = std::move(indices);
  stream.values_ = std::move(values);
  return stream;
}

AnyStream AnyStream::dense(ValueType type, std::uint64_t dimension, Range range, Buffer values) {
  assert(range.begin <= range.end && range.end <= dimension);
  assert(values.size() == range.size() * size_of(type));
  AnyStream stream = sparse(type, dimension, range, {}, {});
  stream.layout_ = Layout::dense;
  stream.phantom_ = values.is_phantom();
  stream.nnz_ = range.size();
  stream.values_ = std::move(values);
  return stream;
}

AnyStream AnyStream::phantom(ValueType type, std::uint64_t dimension, Range range, Layout layout, std::uint64_t nnz) {
  if (layout == Layout::dense) return dense(type, dimension, range, Buffer::phantom(range.size() * size_of(type)));
  return sparse(type, dimension, range, Buffer::phantom(nnz * index_bytes(dimension)),
                Buffer::phantom(nnz * size_of(type)));
}

std::uint64_t AnyStream::index_at(std::uint64_t i) const {
  assert(!is_dense() && !phantom_ && i < nnz_);
  return visit_index_type(dimension_, [&]<class I>() -> std::uint64_t { return indices_.as<I>()[i]; });
}

void AnyStream::validate() const {
  if (is_dense() || phantom_) return;
  visit_index_type(dimension_, [&]<class I>() { require_sorted(indices_.as<I>(), dimension_, range_); });
}

AnyStream AnyStream::to_owned() const {
  AnyStream owned = *this;
  owned.indices_ = indices_.to_owned();
  owned.values_ = values_.to_owned();
  return owned;
}

bool operator==(const AnyStream& a, const AnyStream& b) {
  return a.type_ == b.type_ && a.layout_ == b.layout_ && a.phantom_ == b.phantom_ && a.dimension_ == b.dimension_ &&
         a.range_ == b.range_ && same_bytes(a.indices_, b.indices_) && same_bytes(a.values_, b.values_);
}

}  // namespace tulle
