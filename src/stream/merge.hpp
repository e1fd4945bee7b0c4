// Merging two runs of pairs without a branch per pair.
//
// How it works: which side the next pair comes from is a coin toss to the branch predictor, so positions advance by
// arithmetic on a comparison. Each step then waits for the one before it: load, compare, add, 8 cycles. Long runs are
// therefore cut into *blocks* of *lanes*, which take their steps in turns: while one lane waits another works. Lanes
// are cut so that all pairs of a lane precede those of the next. What is left when a side of a lane ends, and short
// runs, go through merge_rest().
//
// Pairs of equal index are both kept, the lower one first; fold.hpp makes one of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "stream/pairs.hpp"
#include "stream/select.hpp"

namespace tulle {

// More than two lanes do not fit the registers. Shorter ones spend their time on ends; a block of longer ones does not
// fit the cache, where fold.hpp finds it.
inline constexpr std::size_t kLanes = 2;
inline constexpr std::size_t kLanePairs = 4096;
inline constexpr std::size_t kBlockPairs = kLanes * kLanePairs;

/// Positions in the two runs.
struct MergePosition {
  std::size_t lower = 0;
  std::size_t higher = 0;
};

/// Where the first `count` pairs of the merged order end.
template <class V, class I>
MergePosition split_after(std::size_t count, PairsView<V, I> lower, PairsView<V, I> higher) {
  std::size_t least = count > higher.size ? count - higher.size : 0;
  std::size_t most = std::min(count, lower.size);
  while (least < most) {
    const std::size_t middle = (least + most) / 2;
    if (lower.indices[middle] <= higher.indices[count - 1 - middle]) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  return {least, count - least};
}

/// Writes the next pair and moves on.
template <class V, class I>
void merge_step(PairsView<V, I> lower, PairsView<V, I> higher, MergePosition& at, I& index, V& value) {
  const I a = lower.indices[at.lower];
  const I b = higher.indices[at.higher];
  const std::size_t from_higher = mask_of(b < a);
  index = std::min(a, b);
  value = select(from_higher, higher.values[at.higher], lower.values[at.lower]);
  at.lower += 1 + from_higher;
  at.higher -= from_higher;
}

template <class V, class I>
void merge_rest(PairsView<V, I> lower, PairsView<V, I> higher, PairsTarget<V, I> target) {
  MergePosition at;
  std::size_t written = 0;
  for (; at.lower < lower.size && at.higher < higher.size; ++written) {
    merge_step(lower, higher, at, target.indices[written], target.values[written]);
  }
  copy_pairs(lower.from(at.lower), target.from(written));
  copy_pairs(higher.from(at.higher), target.from(written));
}

/// Takes steps on all lanes in turns while none of them can run out, and returns how many on each.
template <class V, class I>
std::size_t advance_lanes(PairsView<V, I> lower, PairsView<V, I> higher, std::array<MergePosition, kLanes>& lanes,
                          const std::array<MergePosition, kLanes>& ends, PairsTarget<V, I> target) {
  constexpr std::size_t kFewSteps = 8;
  std::array<MergePosition, kLanes> at = lanes;
  std::size_t written = 0;
  for (;;) {
    std::size_t steps = kLanePairs;
    for (std::size_t l = 0; l < kLanes; ++l) {
      steps = std::min({steps, ends[l].lower - at[l].lower, ends[l].higher - at[l].higher});
    }
    if (steps < kFewSteps) break;
    for (const std::size_t end = written + steps; written < end; ++written) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        const PairsTarget<V, I> place = target.from(l * kLanePairs + written);
        merge_step(lower, higher, at[l], *place.indices, *place.values);
      }
    }
  }
  lanes = at;
  return written;
}

/// Merges the first kBlockPairs pairs and returns where they end. REQUIRES: there are as many.
template <class V, class I>
MergePosition merge_block(PairsView<V, I> lower, PairsView<V, I> higher, PairsTarget<V, I> target) {
  std::array<MergePosition, kLanes> lanes;
  std::array<MergePosition, kLanes> ends;
  for (std::size_t l = 0; l < kLanes; ++l) {
    if (l > 0) lanes[l] = ends[l - 1];
    ends[l] = split_after((l + 1) * kLanePairs, lower, higher);
  }
  const std::size_t steps = advance_lanes(lower, higher, lanes, ends, target);
  for (std::size_t l = 0; l < kLanes; ++l) {
    merge_rest(lower.first(ends[l].lower).from(lanes[l].lower), higher.first(ends[l].higher).from(lanes[l].higher),
               target.from(l * kLanePairs + steps));
  }
  return ends.back();
}

/// Merges all pairs of two runs.
template <class V, class I>
void merge_two(PairsView<V, I> lower, PairsView<V, I> higher, PairsTarget<V, I> target) {
  while (lower.size > 0 && higher.size > 0 && lower.size + higher.size >= kBlockPairs) {
    const MergePosition end = merge_block(lower, higher, target);
    lower = lower.from(end.lower);
    higher = higher.from(end.higher);
    target = target.from(kBlockPairs);
  }
  merge_rest(lower, higher, target);
}

}  // namespace tulle
