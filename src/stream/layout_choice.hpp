// What a result will look like and what it costs, from the operands' sizes alone: the same for real streams and
// phantoms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tulle/stream/reduction.hpp"

namespace tulle {

inline std::uint64_t total_nnz(std::span<const AnyStream> streams) {
  std::uint64_t total = 0;
  for (const AnyStream& stream : streams) total += stream.nnz();
  return total;
}

inline Layout layout_of_result(std::span<const AnyStream> streams, Range range, LayoutRule rule) {
  if (rule.choice == LayoutChoice::dense || std::ranges::any_of(streams, &AnyStream::is_dense)) return Layout::dense;
  if (rule.choice == LayoutChoice::sparse) return Layout::sparse;
  const AnyStream& first = streams.front();
  const std::uint64_t most = rule.most_sparse(range.size(), first.dimension(), first.type());
  return total_nnz(streams) > most ? Layout::dense : Layout::sparse;
}

/// The pairs of sparse operands; the values of dense ones, or of a dense result that no dense operand gives.
inline KernelReport items_of(std::span<const AnyStream> streams, Range range, Layout result) {
  KernelReport items;
  for (const AnyStream& stream : streams) (stream.is_dense() ? items.dense_items : items.sparse_items) += stream.nnz();
  if (result == Layout::dense && items.dense_items == 0) items.dense_items = range.size();
  return items;
}

/// The same of a join: dense blocks of which a landing was given lie there already.
inline KernelReport items_of_join(std::span<const AnyStream> blocks, Range range, Layout result, bool has_landing) {
  if (result == Layout::sparse || !has_landing) return items_of(blocks, range, result);
  KernelReport items;
  for (const AnyStream& block : blocks) {
    if (!block.is_dense()) items += {.sparse_items = block.nnz(), .dense_items = block.range().size()};
  }
  return items;
}

}  // namespace tulle
