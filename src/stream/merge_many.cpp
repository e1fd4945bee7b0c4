// k-way merge as a tree of two-way merges.
//
// How it works: every stream is a *run*, sorted by index. A *level* merges neighbouring runs two by two and keeps both
// of two equal indices, the one of the earlier stream first; ⌈log2 k⌉ levels leave one run in the order (index,
// stream). A last pass folds equal indices from the left, which is why levels must not combine: a ∘ (b ∘ c) would round
// differently. Two-way merges do not mispredict, so this beats a heap, which does once per pair and level.
// Sorting is the same with the ascending stretches of unsorted pairs as runs.
#include "stream/dispatch.hpp"
#include "stream/fold_equal.hpp"
#include "stream/kernels.hpp"
#include "stream/merge.hpp"

namespace tulle {
namespace {

template <class V, class I>
using Runs = PoolVector<PairsView<V, I>>;

/// Halves the number of runs; the merged ones lie in `target` one after the other.
template <class V, class I>
void merge_level(Runs<V, I>& runs, PairsTarget<V, I> target) {
  std::size_t merged = 0;
  std::size_t offset = 0;
  for (std::size_t r = 0; r < runs.size(); r += 2) {
    const PairsView<V, I> higher = r + 1 < runs.size() ? runs[r + 1] : PairsView<V, I>{};
    const PairsTarget<V, I> place = target.from(offset);
    const std::size_t size = runs[r].size + higher.size;
    merge_two(runs[r], higher, place);
    runs[merged++] = {place.indices, place.values, size};
    offset += size;
  }
  runs.resize(merged);
}

template <class V, class I, class Combine>
AnyStream merge_runs(const AnyStream& like, Runs<V, I> runs, std::size_t total, Combine combine) {
  PairsBuffer<V, I> even(total);
  PairsBuffer<V, I> odd(total);
  bool into_even = true;
  for (; runs.size() > 1; into_even = !into_even) merge_level(runs, (into_even ? even : odd).target());
  PairsBuffer<V, I>& result = into_even ? even : odd;  // not where the last run lies
  const std::size_t nnz = runs.empty() ? 0 : fold_equal(runs.front(), result.target(), combine);
  return std::move(result).to_stream(like, nnz);
}

template <class V, class I>
Runs<V, I> ascending_runs(PairsView<V, I> pairs) {
  Runs<V, I> runs;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= pairs.size; ++i) {
    if (i < pairs.size && pairs.indices[i - 1] <= pairs.indices[i]) continue;
    runs.push_back(pairs.from(begin).first(i - begin));
    begin = i;
  }
  return runs;
}

}  // namespace

AnyStream merge_many(std::span<const AnyStream> streams, const Op& op) {
  return visit_kernel(streams.front(), op, [&]<class V, class I>(auto combine) {
    Runs<V, I> runs;
    std::size_t total = 0;
    for (const AnyStream& stream : streams) {
      if (stream.nnz() > 0) runs.push_back(pairs_of<V, I>(stream));
      total += stream.nnz();
    }
    return merge_runs(streams.front(), std::move(runs), total, combine);
  });
}

AnyStream sort_pairs(const AnyStream& like, Buffer indices, Buffer values, const Op& op) {
  return visit_kernel(like, op, [&]<class V, class I>(auto combine) {
    const std::span<const I> all = indices.as<I>();
    return merge_runs(like, ascending_runs<V, I>({all.data(), values.as<V>().data(), all.size()}), all.size(), combine);
  });
}

}  // namespace tulle
