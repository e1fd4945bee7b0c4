// bucketed_top_k: the k largest magnitudes of every `bucket` consecutive values (SparCML's choice for deep networks:
// 1 to 16 of every 512).
//
// How it works. Buckets are small enough for the L1 cache, so one pass over the data reads, selects (bucket_kernel.cpp)
// and writes. No threshold is needed, the result has a known size, and selected values are spread over the vector.
//
// The *randomized* form lays the bucket out in rows of a random width between 2k and 3k and takes the k largest of the
// columns' maxima: what the exact form begins with. It misses a value where a larger one is in its column, about one in
// six at k = 16 and none at k = 1. The width depends on (seed, step, bucket), so that the same two meet seldom.
#include <algorithm>

#include "select/bucket_kernel.hpp"
#include "select/gather.hpp"
#include "select/non_finite.hpp"
#include "select/selectors.hpp"
#include "select/survivors.hpp"
#include "select/tile_reader.hpp"
#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

// Different widths to choose from where k is small.
constexpr std::size_t kLeastChoice = 8;

struct BucketSpec {
  std::uint64_t size;
  std::size_t k;
  BucketForm form;
  Key end_key;  ///< keys from here on count as zeros
  Philox random;
};

template <class V>
std::size_t select_bucket(const BucketSpec& spec, std::span<const V> values, std::uint64_t bucket,
                          BucketScratch<V>& scratch) {
  if (spec.form == BucketForm::exact) return top_of_bucket(values, spec.k, spec.end_key, scratch);
  const std::size_t columns = 2 * spec.k + spec.random.at(bucket) % (spec.k + kLeastChoice);
  return top_of_columns(values, spec.k, spec.end_key, columns, scratch);
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
  const AnyStream selected = admit_non_finite(input, found, options.non_finite);
  return taken(input, selected, 0, selected.nnz());
}

}  // namespace tulle
