#include "tulle/stream/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "stream/kernels.hpp"
#include "stream/layout_choice.hpp"

namespace tulle {

void require_alike(std::span<const AnyStream> streams, const Op& op) {
  const AnyStream& first = streams.front();
  op.require_defined_on(first.type());
  for (const AnyStream& other : streams.subspan(1)) {
    if (other.type() == first.type() && other.dimension() == first.dimension() && other.range() == first.range())
      continue;
    throw Error(ErrorKind::bad_input,
                fmt::format("streams do not match: {} with N = {} over [{}, {}) and {} with N = {} over [{}, {})",
                            to_string(first.type()), first.dimension(), first.range().begin, first.range().end,
                            to_string(other.type()), other.dimension(), other.range().begin, other.range().end));
  }
}

namespace {

// Rounded once, after all: a thousand streams of one non-zero each overlap, two of them hardly.
std::uint64_t expected_union_of(std::span<const AnyStream> streams) {
  const auto extent = static_cast<double>(streams.front().range().size());
  if (extent == 0) return 0;
  double share_of_none = 1;
  for (const AnyStream& stream : streams) share_of_none *= 1 - static_cast<double>(stream.nnz()) / extent;
  const std::uint64_t all = total_nnz(streams);
  const double expected = extent * (1 - share_of_none);
  return expected < static_cast<double>(all) ? static_cast<std::uint64_t>(std::llround(expected)) : all;
}

AnyStream reduce_phantoms(std::span<const AnyStream> streams, Layout layout) {
  const AnyStream& first = streams.front();
  return AnyStream::phantom(first.type(), first.dimension(), first.range(), layout, expected_union_of(streams));
}

// The bound on a sum of many streams is loose where they overlap, so those that pass it are counted.
Layout layout_of_many(std::span<const AnyStream> streams, LayoutRule rule, KernelReport& items) {
  const AnyStream& first = streams.front();
  const Layout by_bound = layout_of_result(streams, first.range(), rule);
  const bool is_bound_only = by_bound == Layout::dense && rule.choice == LayoutChoice::automatic &&
                             streams.size() > 2 && std::ranges::none_of(streams, &AnyStream::is_dense);
  if (!is_bound_only) return by_bound;
  items.sparse_items += static_cast<std::uint64_t>(kCountingShare * static_cast<double>(total_nnz(streams)));
  const std::uint64_t most = rule.most_sparse(first.range().size(), first.dimension(), first.type());
  const bool exceeds = std::ranges::any_of(streams, &AnyStream::is_phantom) ? expected_union_of(streams) > most
                                                                            : union_exceeds(streams, most);
  return exceeds ? Layout::dense : Layout::sparse;
}

/// The dense operand's memory, to be overwritten: its own where nobody else sees it, else a copy.
Buffer memory_to_overwrite(AnyStream dense) {
  Buffer values = dense.values_buffer();
  dense = {};
  return values.is_unique() ? values : Buffer::copy_of(values.bytes());
}

AnyStream combine_dense_pair(AnyStream lower, AnyStream higher, const Op& op) {
  const AnyStream shape = AnyStream::empty(lower.type(), lower.dimension(), lower.range());
  Buffer left = lower.values_buffer();
  Buffer right = higher.values_buffer();
  lower = {};
  higher = {};
  // A user's op may write over its lower operand only.
  const bool right_is_free = op.user_op() == nullptr && !left.is_unique() && right.is_unique();
  Buffer target = right_is_free ? right : left.is_unique() ? left : allocate_dense(shape.type(), shape.range().size());
  combine_dense(shape.type(), op, target.data_for_landing(), left.data(), right.data(), shape.range().size());
  return AnyStream::dense(shape.type(), shape.dimension(), shape.range(), std::move(target));
}

AnyStream combine_mixed_pair(AnyStream lower, AnyStream higher, const Op& op) {
  const DenseSide side = lower.is_dense() ? DenseSide::lower : DenseSide::higher;
  const AnyStream sparse = std::move(lower.is_dense() ? higher : lower);
  Buffer values = memory_to_overwrite(std::move(side == DenseSide::lower ? lower : higher));
  scatter(sparse, op, values.mutable_data(), side);
  return AnyStream::dense(sparse.type(), sparse.dimension(), sparse.range(), std::move(values));
}

AnyStream reduce_to_sparse(std::span<const AnyStream> streams, const Op& op) {
  if (prefers_tiles(streams)) return accumulate_sparse(streams, op);
  return streams.size() == 2 ? merge(streams[0], streams[1], op) : merge_many(streams, op);
}

AnyStream reduce_to_dense(std::span<const AnyStream> streams, const Op& op, Buffer landing) {
  const AnyStream& first = streams.front();
  if (landing.empty()) landing = allocate_dense(first.type(), first.range().size());
  accumulate_dense(streams, op, landing.data_for_landing());
  return AnyStream::dense(first.type(), first.dimension(), first.range(), std::move(landing));
}

AnyStream reduce_pair(std::array<AnyStream, 2> operands, const Op& op, Layout layout) {
  auto& [lower, higher] = operands;
  if (lower.is_dense() && higher.is_dense()) return combine_dense_pair(std::move(lower), std::move(higher), op);
  if (lower.is_dense() || higher.is_dense()) return combine_mixed_pair(std::move(lower), std::move(higher), op);
  if (layout == Layout::dense) return reduce_to_dense(operands, op, {});
  if (higher.nnz() == 0) return lower;
  if (lower.nnz() == 0) return higher;
  return reduce_to_sparse(operands, op);
}

AnyStream land(AnyStream dense, Buffer landing) {
  if (landing.empty()) return dense;
  std::ranges::copy(dense.values_buffer().bytes(), landing.data_for_landing());
  return AnyStream::dense(dense.type(), dense.dimension(), dense.range(), std::move(landing));
}

AnyStream reduce_computed(std::span<const AnyStream> streams, const Op& op, Layout layout, Buffer landing) {
  if (layout == Layout::sparse) return reduce_to_sparse(streams, op);
  return reduce_to_dense(streams, op, std::move(landing));
}

void add_to(KernelReport* report, const KernelReport& items) {
  if (report != nullptr) *report += items;
}

}  // namespace

std::uint64_t LayoutRule::most_sparse(std::uint64_t extent, std::uint64_t dimension, ValueType type) const {
  return fill == 0 ? delta(extent, dimension, type) : static_cast<std::uint64_t>(fill * static_cast<double>(extent));
}

AnyStream reduce(AnyStream lower, AnyStream higher, const Op& op, KernelReport* report, LayoutRule rule) {
  std::array<AnyStream, 2> operands{std::move(lower), std::move(higher)};
  require_alike(operands, op);
  const ValueType type = operands[0].type();
  const Range range = operands[0].range();
  const Layout layout = layout_of_result(operands, range, rule);
  add_to(report, items_of(operands, range, layout));
  if (std::ranges::any_of(operands, &AnyStream::is_phantom)) return reduce_phantoms(operands, layout);
  for (AnyStream& operand : operands) operand = convert(operand, compute_type(type));
  return convert(reduce_pair(std::move(operands), op, layout), type, report);
}

AnyStream reduce_many(std::span<const AnyStream> streams, const Op& op, KernelReport* report, LayoutRule rule,
                      Buffer landing) {
  assert(!streams.empty());
  require_alike(streams, op);
  const AnyStream& first = streams.front();
  KernelReport items;
  const Layout layout = layout_of_many(streams, rule, items);
  if (layout == Layout::sparse) landing = {};
  const bool is_there = landing.empty() || landing.data() == first.values_buffer().data();
  if (streams.size() == 1 && first.layout() == layout && is_there) return first;
  add_to(report, items += items_of(streams, first.range(), layout));
  if (std::ranges::any_of(streams, &AnyStream::is_phantom)) return reduce_phantoms(streams, layout);
  const ValueType computed = compute_type(first.type());
  if (computed == first.type()) return reduce_computed(streams, op, layout, std::move(landing));
  PoolVector<AnyStream> widened;
  for (const AnyStream& stream : streams) widened.push_back(convert(stream, computed));
  return land(convert(reduce_computed(widened, op, layout, {}), first.type(), report), std::move(landing));
}

std::uint64_t expected_union(std::uint64_t a, std::uint64_t b, std::uint64_t extent) {
  if (extent == 0) return 0;
  const auto common = (static_cast<unsigned __int128>(a) * b + extent / 2) / extent;
  return a + b - static_cast<std::uint64_t>(common);
}

}  // namespace tulle
