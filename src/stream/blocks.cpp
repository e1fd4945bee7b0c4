// Cutting a stream into blocks and joining blocks again.
#include <algorithm>
#include <cstring>

#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "stream/layout_choice.hpp"

namespace tulle {
namespace {

/// floor(nnz * part / whole): the non-zeros expected in the first `part` positions of a phantom stream.
std::uint64_t expected_before(const AnyStream& stream, std::uint64_t end) {
  if (stream.range().size() == 0) return 0;
  const auto product = static_cast<unsigned __int128>(stream.nnz()) * (end - stream.range().begin);
  return static_cast<std::uint64_t>(product / stream.range().size());
}

Range joined_range(std::span<const AnyStream> blocks) {
  Range joined = blocks.front().range();
  for (const AnyStream& block : blocks.subspan(1)) {
    if (block.range().begin != joined.end || block.type() != blocks.front().type() ||
        block.dimension() != blocks.front().dimension()) {
      throw Error(ErrorKind::bad_input,
                  "concatenate: the blocks' ranges, types and dimensions do not follow one another");
    }
    joined.end = block.range().end;
  }
  return joined;
}

Buffer join(std::span<const AnyStream> blocks, const Buffer& (AnyStream::*part)() const, Buffer landing) {
  std::size_t bytes = 0;
  for (const AnyStream& block : blocks) bytes += (block.*part)().size();
  if (landing.empty()) landing = Buffer::allocate(bytes);
  std::byte* place = landing.data_for_landing();
  for (const AnyStream& block : blocks) {
    const std::span<const std::byte> array = (block.*part)().bytes();
    if (array.data() != place) std::ranges::copy(array, place);
    place += array.size();
  }
  return landing;
}

AnyStream join_sparse(std::span<const AnyStream> blocks, Range range, const JoinLanding& landing) {
  const AnyStream& first = blocks.front();
  const auto holds_some = [](const AnyStream& block) { return block.nnz() > 0; };
  if (std::ranges::count_if(blocks, holds_some) <= 1) {
    const auto only = std::ranges::find_if(blocks, holds_some);
    const AnyStream& block = only == blocks.end() ? first : *only;
    return AnyStream::sparse(first.type(), first.dimension(), range, block.indices_buffer(), block.values_buffer());
  }
  return AnyStream::sparse(first.type(), first.dimension(), range,
                           join(blocks, &AnyStream::indices_buffer, landing.indices),
                           join(blocks, &AnyStream::values_buffer, landing.values));
}

AnyStream join_dense(std::span<const AnyStream> blocks, Range range, const Op& op, Buffer landing) {
  const AnyStream& first = blocks.front();
  if (landing.empty()) landing = allocate_dense(first.type(), range.size());
  std::byte* place = landing.data_for_landing();
  for (const AnyStream& block : blocks) {
    const bool landed = block.is_dense() && block.values_buffer().data() == place;
    if (!landed) write_dense(block, op, place);
    place += block.range().size() * size_of(block.type());
  }
  return AnyStream::dense(first.type(), first.dimension(), range, std::move(landing));
}

}  // namespace

std::uint64_t position_of(const AnyStream& stream, std::uint64_t index) {
  return visit_index_type(stream.dimension(), [&]<class I>() -> std::uint64_t {
    const std::span<const I> indices = stream.indices_buffer().as<I>();
    return static_cast<std::uint64_t>(std::ranges::lower_bound(indices, index) - indices.begin());
  });
}

AnyStream slice(const AnyStream& stream, Range range) {
  const ValueType type = stream.type();
  const std::size_t value_bytes = size_of(type);
  if (stream.is_dense()) {
    const std::uint64_t offset = range.begin - stream.range().begin;
    return AnyStream::dense(type, stream.dimension(), range,
                            stream.values_buffer().slice(offset * value_bytes, range.size() * value_bytes));
  }
  if (stream.is_phantom()) {
    const std::uint64_t nnz = expected_before(stream, range.end) - expected_before(stream, range.begin);
    return AnyStream::phantom(type, stream.dimension(), range, Layout::sparse, nnz);
  }
  const std::uint64_t first = position_of(stream, range.begin);
  const std::uint64_t count = position_of(stream, range.end) - first;
  const std::size_t width = stream.index_width();
  return AnyStream::sparse(type, stream.dimension(), range, stream.indices_buffer().slice(first * width, count * width),
                           stream.values_buffer().slice(first * value_bytes, count * value_bytes));
}

AnyStream concatenate(std::span<const AnyStream> blocks, const Op& op, KernelReport* report, LayoutRule rule,
                      JoinLanding landing) {
  const Range range = joined_range(blocks);
  const Layout layout = layout_of_result(blocks, range, rule);
  if (report != nullptr) *report += items_of_join(blocks, range, layout, !landing.dense.empty());
  if (std::ranges::any_of(blocks, &AnyStream::is_phantom)) {
    return AnyStream::phantom(blocks.front().type(), blocks.front().dimension(), range, layout, total_nnz(blocks));
  }
  if (layout == Layout::sparse) return join_sparse(blocks, range, landing);
  return join_dense(blocks, range, op, std::move(landing.dense));
}

}  // namespace tulle
