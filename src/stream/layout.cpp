// Sparse to dense and back. Values are only moved, so the kernels know their width and not their type.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "stream/pairs.hpp"

namespace tulle {
namespace {

// More than any machine has: a dimension that is only meant to be used sparsely.
constexpr std::uint64_t kLargestDenseBytes = std::uint64_t{1} << 40;

template <class Bits, class I>
AnyStream gather_other_than(Bits neutral, const AnyStream& dense) {
  const std::span<const Bits> all = dense.values_buffer().as<Bits>();
  const auto nnz = all.size() - static_cast<std::size_t>(std::count(all.begin(), all.end(), neutral));
  PairsBuffer<Bits, I> result(nnz);
  const PairsTarget<Bits, I> target = result.target();
  // Every value is written and the next one overwrites it unless it counts: no branch per value.
  for (std::size_t i = 0, written = 0; written < nnz; ++i) {
    target.indices[written] = static_cast<I>(dense.range().begin + i);
    target.values[written] = all[i];
    written += all[i] != neutral;
  }
  return std::move(result).to_stream(dense, nnz);
}

}  // namespace

ScalarBytes stored_neutral(const Op& op, ValueType type) {
  op.require_defined_on(type);
  const ScalarBytes neutral = op.neutral(type);
  ScalarBytes stored{};
  convert_values(compute_type(type), neutral.data(), type, stored.data(), 1);
  return stored;
}

Buffer allocate_dense(ValueType type, std::uint64_t count) {
  const auto bytes = static_cast<unsigned __int128>(count) * size_of(type);
  if (bytes > kLargestDenseBytes) {
    throw Error(ErrorKind::bad_input, fmt::format("the dense form of {} values of {} needs more than {} bytes", count,
                                                  to_string(type), kLargestDenseBytes));
  }
  try {
    return Buffer::allocate(static_cast<std::size_t>(bytes));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::system, fmt::format("the dense form of {} values of {} needs {} bytes, which are not there",
                                               count, to_string(type), static_cast<std::uint64_t>(bytes)));
  }
}

void write_dense(const AnyStream& stream, const Op& op, std::byte* destination) {
  visit_bits(stream.type(), [&]<class Bits>() {
    auto* values = reinterpret_cast<Bits*>(destination);
    if (stream.is_dense()) {
      std::ranges::copy(stream.values_buffer().as<Bits>(), values);
      return;
    }
    std::fill_n(values, stream.range().size(), scalar_from<Bits>(stored_neutral(op, stream.type())));
    visit_index_type(stream.dimension(), [&]<class I>() {
      const auto pairs = pairs_of<Bits, I>(stream);
      for (std::size_t i = 0; i < pairs.size; ++i) values[pairs.indices[i] - stream.range().begin] = pairs.values[i];
    });
  });
}

AnyStream to_dense(const AnyStream& stream, const Op& op, KernelReport* report) {
  if (stream.is_dense()) return stream;
  if (report != nullptr) *report += {.sparse_items = stream.nnz(), .dense_items = stream.range().size()};
  if (stream.is_phantom()) {
    return AnyStream::phantom(stream.type(), stream.dimension(), stream.range(), Layout::dense, stream.nnz());
  }
  Buffer values = allocate_dense(stream.type(), stream.range().size());
  write_dense(stream, op, values.mutable_data());
  return AnyStream::dense(stream.type(), stream.dimension(), stream.range(), std::move(values));
}

AnyStream to_sparse(const AnyStream& stream, const Op& op, KernelReport* report) {
  if (!stream.is_dense()) return stream;
  if (report != nullptr) *report += {.dense_items = stream.nnz()};
  if (stream.is_phantom()) {
    return AnyStream::phantom(stream.type(), stream.dimension(), stream.range(), Layout::sparse, stream.nnz());
  }
  return visit_bits(stream.type(), [&]<class Bits>() {
    const auto neutral = scalar_from<Bits>(stored_neutral(op, stream.type()));
    return visit_index_type(stream.dimension(), [&]<class I>() { return gather_other_than<Bits, I>(neutral, stream); });
  });
}

}  // namespace tulle
