// bucketed_top_k: the k largest magnitudes of every `bucket` consecutive values (SparCML's choice for deep networks:
// 1 to 16 of every 512).
//
// How it works. Buckets are small enough for the L1 cache, so one pass over the data reads, selects (bucket_kernel.cpp)
// and writes. No threshold is needed, the result has a known size, and selected values are spread over the vector.
//
// The *randomized* form stops when it has a few candidates, the 1.4k largest or so, and leaves out as many as are too
// many at a random place. So it takes k of the largest values rather than the k largest. The place depends on (seed,
// step, bucket): what is left out now will be in the residual then.
#include <algorithm>

#include "select/bucket_kernel.hpp"
#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/survivors.hpp"
#include "select/tile_reader.hpp"
#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

struct BucketSpec {
  std::uint64_t size;
  std::size_t k;
  BucketForm form;
  Key end_key;  ///< keys from here on count as zeros
  Philox random;
};

// Takes `few` − k positions out, from a random one on and around the end.
template <class V>
std::size_t keep_some(std::size_t few, std::size_t k, std::uint64_t random, BucketScratch<V>& scratch) {
  if (few <= k) return few;
  auto* const positions = scratch.positions.data();
  const std::size_t from = random % few;
  const std::size_t to = from + (few - k);
  if (to <= few) {
    std::copy(positions + to, positions + few, positions + from);
  } else {
    std::copy(positions + (to - few), positions + from, positions);
  }
  return k;
}

template <class V>
std::size_t select_bucket(const BucketSpec& spec, std::span<const V> values, std::uint64_t bucket,
                          BucketScratch<V>& scratch) {
  const std::size_t few = bucket_candidates(values, spec.k, spec.end_key, scratch);
  if (spec.form == BucketForm::exact) return keep_largest(few, spec.k, scratch);
  return keep_some(few, spec.k, spec.random.at(bucket), scratch);
}

// While the bucket is in the cache.
template <class K>
void clear_bucket(const DenseInput& input, std::uint64_t first, const K* positions, std::size_t count) {
  visit_bits(input.type, [&]<class Bits>() {
    auto* const residual = reinterpret_cast<Bits*>(input.residual) + first;
    for (std::size_t i = 0; i < count; ++i) residual[positions[i]] = 0;
  });
}

template <class V, class I>
void select_part(const DenseInput& input, const BucketSpec& spec, Range part, Survivors<V, I>& survivors) {
  TileReader<V> reader(input, spec.size);
  BucketScratch<V> scratch(spec.size);
  for (std::uint64_t first = part.begin; first < part.end; first += spec.size) {
    const std::size_t count = std::min(spec.size, part.end - first);
    const V* const values = reader.read(first, count);
    const std::size_t found = select_bucket<V>(spec, {values, count}, first / spec.size, scratch);
    const PairsTarget<V, I> room = survivors.room_for(found);
    for (std::size_t i = 0; i < found; ++i) {
      room.indices[i] = static_cast<I>(input.range.begin + first + scratch.positions[i]);
      room.values[i] = values[scratch.positions[i]];
    }
    survivors.add(found);
    if (input.residual != nullptr) clear_bucket(input, first, scratch.positions.data(), found);
  }
}

}  // namespace

Selection bucketed_top_k(const DenseInput& input, const SelectOptions& options) {
  const std::uint64_t count = input.range.size();
  const std::uint64_t size = std::min(options.bucket, std::max<std::uint64_t>(count, 1));
  const std::uint64_t k = wanted_k(options, size);
  if (k == 0) return select_top_k(input, {.k = 0, .non_finite = options.non_finite}, Side::both);
  const Key end_key = options.non_finite == NonFinite::skip ? first_non_finite(input.type) : ~Key{0};
  const BucketSpec spec{size, k, options.form, end_key, Philox(options.seed, options.step)};
  const AnyStream found = visit_input(input, [&]<class V, class I>() {
    return run_parts<V, I>(input, size, (count / size + 1) * k,
                           [&](Range part, Survivors<V, I>& survivors) { select_part(input, spec, part, survivors); });
  });
  try {
    const AnyStream selected = admit_non_finite(input, found, options.non_finite);
    return {convert(selected, input.type), 0, selected.nnz()};
  } catch (...) {
    if (input.residual != nullptr) put_back(input, found);
    throw;
  }
}

}  // namespace tulle
