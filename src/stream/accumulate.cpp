// k-way reduction by way of dense tiles.
//
// How it works: the range is walked in *tiles* that fit the cache. Into each tile every stream's values are written in
// stream order; an *occupied* bit per value tells whether to assign or to combine. A dense result is its own tile. For
// a sparse one the occupied bits, read 64 at a time, give the indices in order. The cost is a few instructions per
// value plus one per 64 positions of the range, whatever the number of streams.
#include <algorithm>
#include <bit>

#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "stream/layout_choice.hpp"
#include "stream/pairs.hpp"
#include "stream/select.hpp"

namespace tulle {
namespace {

// Too small and the loop over streams shows; too large and the tile leaves the L2 cache.
constexpr std::size_t kTileValues = std::size_t{1} << 14;
constexpr std::size_t kTileWords = kTileValues / 64;

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
    const std::uint64_t last = begin_ + (count_ - 1);
    std::size_t i = 0;
    if (state_ == State::empty) state_ = State::partial;
    for (; i < rest.size && rest.indices[i] <= last; ++i) add(rest.indices[i] - begin_, rest.values[i]);
    rest = rest.from(i);
  }

  void add_dense(const V* values, const Op& op) {
    switch (state_) {
      case State::empty: std::copy_n(values, count_, values_); break;
      case State::partial:
        for (std::size_t i = 0; i < count_; ++i) {
          values_[i] = is_occupied(i) ? combine_(values_[i], values[i]) : values[i];
        }
        break;
      case State::full: combine_dense(kValueTypeOf<V>, op, bytes(values_), bytes(values_), bytes(values), count_); break;
    }
    state_ = State::full;
  }

  /// Writes the occupied positions in order and returns how many there are. REQUIRES: no dense stream was added.
  std::size_t emit(PairsTarget<V, I> target) const {
    std::size_t written = 0;
    for (std::size_t w = 0; w < kTileWords; ++w) {
      for (std::uint64_t word = occupied_[w]; word != 0; word &= word - 1) {
        const std::size_t position = w * 64 + static_cast<std::size_t>(std::countr_zero(word));
        target.indices[written] = static_cast<I>(begin_ + position);
        target.values[written] = values_[position];
        ++written;
      }
    }
    return written;
  }

 private:
  enum class State { empty, partial, full };  // full: a dense stream was added

  bool is_occupied(std::size_t position) const { return (occupied_[position / 64] >> (position % 64) & 1) != 0; }

  void add(std::size_t position, V value) {
    const bool combines = state_ == State::full || is_occupied(position);
    if constexpr (Combine::kSpeculative) {
      values_[position] = select(mask_of(combines), combine_(values_[position], value), value);
    } else {
      values_[position] = combines ? combine_(values_[position], value) : value;
    }
    occupied_[position / 64] |= std::uint64_t{1} << (position % 64);
  }

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

}  // namespace

bool prefers_tiles(std::span<const AnyStream> streams) {
  const std::uint64_t extent = hull_of(streams).size();
  return streams.size() > 2 && extent / 256 < total_nnz(streams);
}

AnyStream accumulate_sparse(std::span<const AnyStream> streams, const Op& op) {
  return visit_kernel(streams.front(), op, [&]<class V, class I>(auto combine) {
    const Range hull = hull_of(streams);
    PairsBuffer<V, I> result(std::min(total_nnz(streams), hull.size()));
    PoolVector<V> values(kTileValues);
    auto views = views_of<V, I>(streams);
    Tile<V, I, decltype(combine)> tile(combine);
    std::size_t nnz = 0;
    for (std::uint64_t begin = hull.begin; begin < hull.end; begin += kTileValues) {
      tile.start(begin, kTileValues, values.data());
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
    Tile<V, I, decltype(combine)> tile(combine);
    for (std::uint64_t offset = 0; offset < range.size(); offset += kTileValues) {
      const std::size_t count = std::min<std::uint64_t>(kTileValues, range.size() - offset);
      V* values = reinterpret_cast<V*>(result) + offset;
      if (!any_dense) std::fill_n(values, count, neutral);  // else the dense stream fills what is absent
      tile.start(range.begin + offset, count, values);
      for (std::size_t s = 0; s < streams.size(); ++s) {
        if (streams[s].is_dense()) tile.add_dense(streams[s].values_buffer().as<V>().data() + offset, op);
        else tile.add_sparse(views[s]);
      }
    }
  });
}

}  // namespace tulle
