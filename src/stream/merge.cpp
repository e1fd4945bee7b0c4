// Two sparse streams to one: blocks are merged into scratch memory that stays in the cache, and folded from there.
#include "stream/merge.hpp"

#include "stream/fold_equal.hpp"
#include "stream/kernels.hpp"

namespace tulle {
namespace {

template <class V, class I, class Combine>
std::size_t merge_and_fold(PairsView<V, I> lower, PairsView<V, I> higher, PairsTarget<V, I> target, Combine combine) {
  PairsBuffer<V, I> scratch(1 + kBlockPairs + 2);
  const PairsTarget<V, I> block = scratch.target().from(1);
  std::size_t written = 0;
  while (lower.size > 0 && higher.size > 0) {
    std::size_t count = std::min(kBlockPairs, lower.size + higher.size);
    MergePosition end = split_after(count, lower, higher);
    merge_two(lower.first(end.lower), higher.first(end.higher), block);
    // Twins must not be cut.
    if (end.higher < higher.size && higher.indices[end.higher] == block.indices[count - 1]) {
      copy_pairs(higher.from(end.higher++).first(1), block.from(count++));
    }
    block.indices[-1] = ~block.indices[0];
    block.indices[count] = ~block.indices[count - 1];
    block.values[count] = {};
    written += fold_twins<V, I>({block.indices, block.values, count}, target.from(written), combine);
    lower = lower.from(end.lower);
    higher = higher.from(end.higher);
  }
  copy_pairs(lower, target.from(written));
  copy_pairs(higher, target.from(written));
  return written + lower.size + higher.size;
}

}  // namespace

AnyStream merge(const AnyStream& lower, const AnyStream& higher, const Op& op) {
  return visit_kernel(lower, op, [&]<class V, class I>(auto combine) {
    PairsBuffer<V, I> result(lower.nnz() + higher.nnz() + kFoldSlack);
    const std::size_t nnz = merge_and_fold(pairs_of<V, I>(lower), pairs_of<V, I>(higher), result.target(), combine);
    return std::move(result).to_stream(lower, nnz);
  });
}

}  // namespace tulle
