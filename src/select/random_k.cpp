// random_k: k coordinates drawn uniformly without looking at their values, except that zeros are not worth sending.
//
// How it works. Positions are drawn by counters of (seed, step) and noted in a bitmap; one that is drawn again is drawn
// anew, so that all sets of k are equally likely. From half of the values on, the positions to leave out are drawn.
// The bitmap, read in order, gives sorted pairs. Ranks with equal seed and step draw the same positions.
//
// Cost: k draws and N/8 bytes; with NonFinite::error one pass over the data as well.
#include <algorithm>
#include <bit>

#include "select/non_finite.hpp"
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/survivors.hpp"
#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

using Bitmap = PoolVector<std::uint64_t>;

void flip(Bitmap& bitmap, std::uint64_t count) {
  for (std::uint64_t& word : bitmap) word = ~word;
  if (count % 64 != 0) bitmap.back() &= (std::uint64_t{1} << count % 64) - 1;
}

Bitmap draw(std::uint64_t count, std::uint64_t k, const SelectOptions& options) {
  Philox random(options.seed, options.step);
  Bitmap drawn((count + 63) / 64);
  for (std::uint64_t missing = std::min(k, count - k); missing > 0;) {
    const std::uint64_t position = random.below(count);
    const std::uint64_t bit = std::uint64_t{1} << position % 64;
    missing -= (drawn[position / 64] & bit) == 0;
    drawn[position / 64] |= bit;
  }
  if (k > count - k) flip(drawn, count);
  return drawn;
}

template <class V>
bool is_wanted(V value, NonFinite policy) {
  const auto key = magnitude_key(static_cast<std::conditional_t<sizeof(V) == 2, float, V>>(value));
  return key != 0 && (policy != NonFinite::skip || key < first_non_finite(kValueTypeOf<V>));
}

template <class V, class I>
AnyStream read_drawn(const DenseInput& input, const Bitmap& drawn, std::uint64_t k, NonFinite policy) {
  const V* const values = reinterpret_cast<const V*>(input.values);
  PairsBuffer<V, I> pairs(k);
  const PairsTarget<V, I> target = pairs.target();
  std::size_t written = 0;
  for (std::size_t w = 0; w < drawn.size(); ++w) {
    for (std::uint64_t word = drawn[w]; word != 0; word &= word - 1) {
      const std::uint64_t i = w * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
      target.indices[written] = static_cast<I>(input.range.begin + i);
      target.values[written] = values[i];
      written += is_wanted(values[i], policy);
    }
  }
  return std::move(pairs).to_stream(AnyStream::empty(input.type, input.dimension, input.range), written);
}

// Adds the addend and tells of NaN and infinity, where either is asked for.
void prepare(const DenseInput& input, NonFinite policy) {
  if (input.addend == nullptr && policy != NonFinite::error) return;
  const NonFinite only_errors = policy == NonFinite::error ? policy : NonFinite::largest;
  admit_non_finite(input, gather(input, {.low = first_non_finite(input.type)}), only_errors);
}

}  // namespace

Selection random_k(const DenseInput& input, const SelectOptions& options) {
  const std::uint64_t k = wanted_k(options, input.range.size());
  prepare(input, options.non_finite);
  const Bitmap drawn = draw(input.range.size(), k, options);
  const AnyStream selected = visit_value_type(input.type, [&]<class V>() {
    return visit_index_type(input.dimension,
                            [&]<class I>() { return read_drawn<V, I>(input, drawn, k, options.non_finite); });
  });
  return taken(input, selected, 0, selected.nnz());
}

}  // namespace tulle
