// k-way reduction by way of dense tiles.
//
// How it works: the range is walked in *tiles* that fit the cache. Into each tile every stream's values are written in
// stream order; an *occupied* bit per value tells whether to assign or to combine. A dense result is its own tile. For
// a sparse one the occupied bits, read 64 at a time, give the indices in order. The cost is a few instructions per
// value plus one per 64 positions of the range, whatever the number of streams.
#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "stream/dispatch.hpp"
#include "stream/emit.hpp"
#include "stream/kernels.hpp"
#include "stream/layout_choice.hpp"
#include "stream/pairs.hpp"
#include "stream/select.hpp"

namespace tulle {
namespace {

// Too small and the loop over streams shows; too large and the tile leaves the L2 cache.
constexpr std::size_t kTileValues = std::size_t{1} << 14;
constexpr std::size_t kTileWords = kTileValues / 64;
static_assert(std::endian::native == std::endian::little, "the bitmap is written by bytes and read by words");

template <class V>
std::byte* bytes(V* values) {
  return reinterpret_cast<std::byte*>(values);
}
template <class V>
const std::byte* bytes(const V* values) {
  return reinterpret_cast<const std::byte*>(values);
}

template <class V, class I, class Combine>
class Tile {
 public:
  explicit Tile(Combine combine) : combine_(combine), occupied_(kTileWords) {}

  /// An empty tile of positions [begin, begin + count), whose values are to lie at `values`.
  void start(std::uint64_t begin, std::size_t count, V* values) {
    begin_ = begin;
    count_ = count;
    values_ = values;
    state_ = State::empty;
    std::fill(occupied_.begin(), occupied_.end(), 0);
  }

  /// Adds the pairs of the tile, which lead `rest`, and removes them from it.
  void add_sparse(PairsView<V, I>& rest) {
    const Combine combine = combine_;
    switch (state_) {
      case State::empty: add_leading(rest, [](V&, std::uint8_t, V value) { return value; }); break;
      case State::partial:
        add_leading(rest, [combine](V& old, std::uint8_t occupied, V value) {
          if constexpr (Combine::kSpeculative) return select(mask_of(occupied != 0), combine(old, value), value);
          return occupied != 0 ? combine(old, value) : value;
        });
        break;
      case State::full:
        add_leading(rest, [combine](V& old, std::uint8_t, V value) { return combine(old, value); });
        break;
    }
    if (state_ == State::empty) state_ = State::partial;
  }

  void add_dense(const V* values, const Op& op) {
    switch (state_) {
      case State::empty: std::copy_n(values, count_, values_); break;
      case State::partial:
        for (std::size_t i = 0; i < count_; ++i) {
          values_[i] = is_occupied(i) ? combine_(values_[i], values[i]) : values[i];
        }
        break;
      case State::full:
        combine_dense(kValueTypeOf<V>, op, bytes(values_), bytes(values_), bytes(values), count_);
        break;
    }
    state_ = State::full;
  }

  /// Writes the occupied positions in order and returns how many there are. REQUIRES: no dense stream was added.
  std::size_t emit(PairsTarget<V, I> target) const {
    using Bits = BitsOf<V>;
    return emit_occupied(occupied_.data(), kTileWords, reinterpret_cast<const Bits*>(values_), begin_,
                         PairsTarget<Bits, I>{target.indices, reinterpret_cast<Bits*>(target.values)});
  }

 private:
  enum class State { empty, partial, full };  // full: a dense stream was added

  // Bits are set byte by byte, as neighbours in the same word would wait for one another. All is in local variables,
  // since the compiler takes a store to a byte as a store to anything.
  template <class NewValue>
  void add_leading(PairsView<V, I>& rest, NewValue new_value) {
    const PairsView<V, I> pairs = rest;
    const std::uint64_t begin = begin_;
    const std::uint64_t last = begin_ + (count_ - 1);
    V* const values = values_;
    std::uint8_t* const bytes = occupied_bytes();
    std::size_t i = 0;
    for (; i < pairs.size && pairs.indices[i] <= last; ++i) {
      const std::size_t position = pairs.indices[i] - begin;
      const std::uint8_t bit = bit_of(position);
      const std::uint8_t byte = bytes[position / 8];
      values[position] = new_value(values[position], byte & bit, pairs.values[i]);
      bytes[position / 8] = byte | bit;
    }
    rest = pairs.from(i);
  }

  std::uint8_t* occupied_bytes() { return reinterpret_cast<std::uint8_t*>(occupied_.data()); }
  static std::uint8_t bit_of(std::size_t position) { return static_cast<std::uint8_t>(1u << (position % 8)); }
  bool is_occupied(std::size_t position) { return (occupied_bytes()[position / 8] & bit_of(position)) != 0; }

  Combine combine_;
  PoolVector<std::uint64_t> occupied_;
  std::uint64_t begin_ = 0;
  std::size_t count_ = 0;
  V* values_ = nullptr;
  State state_ = State::empty;
};

template <class V, class I>
PoolVector<PairsView<V, I>> views_of(std::span<const AnyStream> streams) {
  PoolVector<PairsView<V, I>> views;
  for (const AnyStream& stream : streams) {
    views.push_back(stream.is_dense() ? PairsView<V, I>{} : pairs_of<V, I>(stream));
  }
  return views;
}

/// The least range that holds all indices.
Range hull_of(std::span<const AnyStream> streams) {
  Range hull{streams.front().range().end, streams.front().range().begin};
  for (const AnyStream& stream : streams) {
    if (stream.nnz() == 0) continue;
    hull.begin = std::min(hull.begin, stream.index_at(0));
    hull.end = std::max(hull.end, stream.index_at(stream.nnz() - 1) + 1);
  }
  return hull.begin < hull.end ? hull : Range{};
}

template <class I>
bool union_exceeds_as(std::span<const AnyStream> streams, std::uint64_t limit) {
  const Range hull = hull_of(streams);
  PoolVector<std::span<const I>> rest;
  for (const AnyStream& stream : streams) rest.push_back(stream.indices_buffer().as<I>());
  PoolVector<std::uint64_t> occupied(kTileWords);
  std::uint64_t found = 0;
  for (std::uint64_t offset = 0; offset < hull.size() && found <= limit; offset += kTileValues) {
    const std::uint64_t begin = hull.begin + offset;
    std::fill(occupied.begin(), occupied.end(), 0);
    for (std::span<const I>& indices : rest) {
      std::size_t i = 0;
      for (; i < indices.size() && indices[i] - begin < kTileValues; ++i) {
        occupied[(indices[i] - begin) / 64] |= std::uint64_t{1} << ((indices[i] - begin) % 64);
      }
      indices = indices.subspan(i);
    }
    for (const std::uint64_t word : occupied) found += static_cast<std::uint64_t>(std::popcount(word));
  }
  return found > limit;
}

// Sums straight into a dense result, without asking which value comes first: half the work per pair.
//
// Starting from -0.0, which added to any float leaves its bits alone, the first value to arrive is kept as it is. What
// is still -0.0 in the end was absent, provided no stream holds a -0.0: no other sum gives one. Adding +0.0 then makes
// it the neutral element and leaves all else alone.
template <class V>
constexpr V kKeepsBits = std::is_floating_point_v<V> ? static_cast<V>(-0.0) : V{0};

template <class V, class I>
bool holds_negative_zero(std::span<const PairsView<V, I>> streams) {
  if constexpr (!std::is_floating_point_v<V>) return false;
  const BitsOf<V> negative_zero = std::bit_cast<BitsOf<V>>(kKeepsBits<V>);
  for (const PairsView<V, I>& pairs : streams) {
    bool found = false;
    for (std::size_t i = 0; i < pairs.size; ++i) found |= std::bit_cast<BitsOf<V>>(pairs.values[i]) == negative_zero;
    if (found) return true;
  }
  return false;
}

template <class V, class I, class Combine>
void sum_into_dense(std::span<PairsView<V, I>> streams, Range range, V* result, Combine combine) {
  for (std::uint64_t offset = 0; offset < range.size(); offset += kTileValues) {
    const std::size_t count = std::min<std::uint64_t>(kTileValues, range.size() - offset);
    const std::uint64_t begin = range.begin + offset;
    const std::uint64_t last = begin + (count - 1);
    V* const values = result + offset;
    std::fill_n(values, count, kKeepsBits<V>);
    for (PairsView<V, I>& rest : streams) {
      const PairsView<V, I> pairs = rest;
      std::size_t i = 0;
      for (; i < pairs.size && pairs.indices[i] <= last; ++i) {
        V& sum = values[pairs.indices[i] - begin];
        sum = combine(sum, pairs.values[i]);
      }
      rest = pairs.from(i);
    }
    for (std::size_t i = 0; i < count; ++i) values[i] = combine(values[i], V{0});
  }
}

}  // namespace

bool union_exceeds(std::span<const AnyStream> streams, std::uint64_t limit) {
  return streams.front().index_width() == 4 ? union_exceeds_as<std::uint32_t>(streams, limit)
                                            : union_exceeds_as<std::uint64_t>(streams, limit);
}

// Measured in ns per pair: tiles take 3 + (extent / nnz) / 20, a merge tree 1.3 + 1.25 log2 k.
bool prefers_tiles(std::span<const AnyStream> streams) {
  const auto extent = static_cast<double>(hull_of(streams).size());
  const double levels = std::log2(static_cast<double>(streams.size()));
  return extent < static_cast<double>(total_nnz(streams)) * (25 * levels - 34);
}

AnyStream accumulate_sparse(std::span<const AnyStream> streams, const Op& op) {
  return visit_kernel(streams.front(), op, [&]<class V, class I>(auto combine) {
    const Range hull = hull_of(streams);
    PairsBuffer<V, I> result(std::min(total_nnz(streams), hull.size()) + kEmitSlack);
    PoolVector<V> values(kTileValues);
    auto views = views_of<V, I>(streams);
    Tile<V, I, decltype(combine)> tile(combine);
    std::size_t nnz = 0;
    for (std::uint64_t offset = 0; offset < hull.size(); offset += kTileValues) {
      tile.start(hull.begin + offset, std::min<std::uint64_t>(kTileValues, hull.size() - offset), values.data());
      for (auto& view : views) tile.add_sparse(view);
      nnz += tile.emit(result.target().from(nnz));
    }
    return std::move(result).to_stream(streams.front(), nnz);
  });
}

void accumulate_dense(std::span<const AnyStream> streams, const Op& op, std::byte* result) {
  visit_kernel(streams.front(), op, [&]<class V, class I>(auto combine) {
    const Range range = streams.front().range();
    const V neutral = op.neutral<V>();
    const bool any_dense = std::ranges::any_of(streams, &AnyStream::is_dense);
    auto views = views_of<V, I>(streams);
    if constexpr (std::is_same_v<decltype(combine), CombineSum<V>>) {
      if (!any_dense && !holds_negative_zero<V, I>(views)) {
        return sum_into_dense<V, I>(views, range, reinterpret_cast<V*>(result), combine);
      }
    }
    Tile<V, I, decltype(combine)> tile(combine);
    for (std::uint64_t offset = 0; offset < range.size(); offset += kTileValues) {
      const std::size_t count = std::min<std::uint64_t>(kTileValues, range.size() - offset);
      V* values = reinterpret_cast<V*>(result) + offset;
      if (!any_dense) std::fill_n(values, count, neutral);  // else the dense stream fills what is absent
      tile.start(range.begin + offset, count, values);
      for (std::size_t s = 0; s < streams.size(); ++s) {
        if (streams[s].is_dense())
          tile.add_dense(streams[s].values_buffer().as<V>().data() + offset, op);
        else
          tile.add_sparse(views[s]);
      }
    }
  });
}

}  // namespace tulle
