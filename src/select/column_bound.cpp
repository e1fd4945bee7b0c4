#include "select/column_bound.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/column_bound.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep; must come before highway.h
#include "hwy/highway.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {

// Plain loops: the compiler makes vectors of them for each target. Maxima are loaded and stored once for four rows.
template <class V, class KeyOf>
HWY_INLINE void raise_by_four_rows(const V* HWY_RESTRICT rows, std::size_t columns, BitsOf<V>* HWY_RESTRICT maxima,
                                   KeyOf key) {
  for (std::size_t i = 0; i < columns; ++i) {
    const auto first = std::max(key(rows[i]), key(rows[columns + i]));
    const auto second = std::max(key(rows[2 * columns + i]), key(rows[3 * columns + i]));
    maxima[i] = std::max(maxima[i], std::max(first, second));
  }
}

template <class V, class KeyOf>
HWY_INLINE void raise_by_row(const V* HWY_RESTRICT row, std::size_t columns, BitsOf<V>* HWY_RESTRICT maxima,
                             KeyOf key) {
  for (std::size_t i = 0; i < columns; ++i) maxima[i] = std::max(maxima[i], key(row[i]));
}

template <class V, class KeyOf>
HWY_INLINE void raise_rows(const V* values, std::size_t count, std::size_t columns, BitsOf<V>* maxima, KeyOf key) {
  std::size_t at = 0;
  for (; at + 4 * columns <= count; at += 4 * columns) raise_by_four_rows(values + at, columns, maxima, key);
  for (; at < count; at += columns) raise_by_row(values + at, std::min(columns, count - at), maxima, key);
}

template <class V>
HWY_INLINE void raise_all(const V* values, std::size_t count, std::size_t columns, Side side, BitsOf<V>* maxima) {
  if (side == Side::both)
    return raise_rows(values, count, columns, maxima, [](V value) { return magnitude_key(value); });
  raise_rows(values, count, columns, maxima, [side](V value) { return key_of(value, side); });
}

#define TULLE_RAISE(name, V)                                                                                 \
  void raise_##name(const V* values, std::size_t count, std::size_t columns, Side side, BitsOf<V>* maxima) { \
    raise_all(values, count, columns, side, maxima);                                                         \
  }
TULLE_FOR_EACH_COMPUTE_TYPE(TULLE_RAISE)
#undef TULLE_RAISE

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/simd.hpp"
#include "select/kth_largest.hpp"
#include "select/tile_reader.hpp"

namespace tulle {
namespace {

#define TULLE_RAISE(name, V)                                                                          \
  HWY_EXPORT(raise_##name);                                                                           \
  void raise(const V* values, std::size_t count, std::size_t columns, Side side, BitsOf<V>* maxima) { \
    apply_simd_environment();                                                                         \
    HWY_DYNAMIC_DISPATCH(raise_##name)(values, count, columns, side, maxima);                         \
  }
TULLE_FOR_EACH_COMPUTE_TYPE(TULLE_RAISE)
#undef TULLE_RAISE

// With fewer values to a column the maxima are too many to look through.
constexpr std::uint64_t kLeastRows = 4;

// Tiles are whole rows of about so many values, which stay in the L1 cache between adding and looking.
constexpr std::size_t kTile = 2048;

// Whole vectors, and an odd number of them: matrices whose rows are a power of two would have a large column of theirs
// in few of ours.
std::size_t columns_for(std::uint64_t k) {
  constexpr std::size_t kLanes = 16;
  return (2 * k / kLanes | 1) * kLanes;
}

}  // namespace

bool column_bound_pays(const DenseInput& input, std::uint64_t k) {
  return k > 0 && stays_cached(input) && columns_for(k) * kLeastRows <= input.range.size();
}

Key column_bound(const DenseInput& input, Side side, std::uint64_t k) {
  const std::uint64_t count = input.range.size();
  const std::size_t columns = columns_for(k), tile = std::max<std::size_t>(kTile / columns, 1) * columns;
  return visit_compute_type(compute_type(input.type), [&]<class V>() -> Key {
    TileReader<V> reader(input, tile);
    PoolVector<BitsOf<V>> maxima(columns);
    for (std::uint64_t first = 0; first < count; first += tile) {
      const std::size_t read = std::min<std::uint64_t>(tile, count - first);
      raise(reader.read(first, read), read, columns, side, maxima.data());
    }
    return std::max<Key>(kth_largest(maxima, k), 1);
  });
}

}  // namespace tulle
#endif  // HWY_ONCE
