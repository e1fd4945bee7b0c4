// Means over the streams that hold an index, by way of tiles.
//
// How it works: as in accumulate.cpp the range is walked in *tiles* that fit the cache, and into each every stream adds
// its values in stream order; here a tile also counts who holds an index. A tile starts at the least index that is
// left, so that stretches which nobody holds cost nothing. Occupied bits, read 64 at a time, give the indices in order.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>

#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "stream/layout_choice.hpp"
#include "stream/pairs.hpp"

namespace tulle {
namespace {

// Too small and the loop over streams shows; too large and sums and counts leave the L1 cache.
constexpr std::size_t kTileValues = std::size_t{1} << 11;

template <class V, class I>
class MeanTile {
 public:
  MeanTile() : sums_(kTileValues), counts_(kTileValues), occupied_(kTileValues / 64) {}

  void start(std::uint64_t begin) { begin_ = begin; }

  /// Adds the pairs of the tile, which lead `rest`, and removes them from it.
  void add_sparse(PairsView<V, I>& rest, double factor) {
    const PairsView<V, I> pairs = rest;
    const std::uint64_t begin = begin_;
    double* const sums = sums_.data();
    std::uint32_t* const counts = counts_.data();
    std::uint64_t* const occupied = occupied_.data();
    std::size_t i = 0;
    for (; i < pairs.size && pairs.indices[i] - begin < kTileValues; ++i) {
      const std::size_t position = pairs.indices[i] - begin;
      sums[position] += factor * static_cast<double>(pairs.values[i]);
      counts[position] += 1;
      occupied[position / 64] |= std::uint64_t{1} << (position % 64);
    }
    rest = pairs.from(i);
  }

  void add_dense(const V* values, std::size_t count, double factor) {
    for (std::size_t i = 0; i < count; ++i) sums_[i] += factor * static_cast<double>(values[i]);
    for (std::size_t i = 0; i < count; ++i) counts_[i] += 1;
  }

  /// Writes the means of what is held, in order, and empties the tile. Returns how many there are.
  std::size_t emit_sparse(PairsTarget<V, I> target) {
    std::size_t written = 0;
    for (std::size_t word = 0; word < occupied_.size(); ++word) {
      for (std::uint64_t bits = std::exchange(occupied_[word], 0); bits != 0; bits &= bits - 1) {
        const std::size_t position = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        target.indices[written] = static_cast<I>(begin_ + position);
        target.values[written++] = take_mean(position);
      }
    }
    return written;
  }

  /// The same where every index is held.
  void emit_dense(V* target, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) target[i] = take_mean(i);
    std::fill(occupied_.begin(), occupied_.end(), 0);
  }

 private:
  V take_mean(std::size_t position) {
    return static_cast<V>(std::exchange(sums_[position], 0) / std::exchange(counts_[position], 0));
  }

  PoolVector<double> sums_;
  PoolVector<std::uint32_t> counts_;
  PoolVector<std::uint64_t> occupied_;
  std::uint64_t begin_ = 0;
};

template <class V, class I>
PoolVector<PairsView<V, I>> views_of(std::span<const AnyStream> streams) {
  PoolVector<PairsView<V, I>> views;
  views.reserve(streams.size());
  for (const AnyStream& stream : streams) {
    views.push_back(stream.is_dense() ? PairsView<V, I>{} : pairs_of<V, I>(stream));
  }
  return views;
}

// As the values have it: the product of two f32 is exact in f64.
template <class V>
double factor_as(double factor) {
  return static_cast<double>(static_cast<V>(factor));
}

template <class V, class I>
AnyStream sparse_means(std::span<const AnyStream> streams, std::span<const double> factors) {
  const AnyStream& first = streams.front();
  PairsBuffer<V, I> result(std::min(total_nnz(streams), first.range().size()));
  PoolVector<PairsView<V, I>> rest = views_of<V, I>(streams);
  MeanTile<V, I> tile;
  std::size_t nnz = 0;
  while (true) {
    std::uint64_t begin = first.range().end;
    for (const auto& view : rest) begin = view.size > 0 ? std::min<std::uint64_t>(begin, *view.indices) : begin;
    if (begin == first.range().end) break;
    tile.start(begin);
    for (std::size_t s = 0; s < rest.size(); ++s) tile.add_sparse(rest[s], factor_as<V>(factors[s]));
    nnz += tile.emit_sparse(result.target().from(nnz));
  }
  return std::move(result).to_stream(first, nnz);
}

template <class V, class I>
AnyStream dense_means(std::span<const AnyStream> streams, std::span<const double> factors) {
  const AnyStream& first = streams.front();
  const Range range = first.range();
  Buffer result = allocate_dense(first.type(), range.size());
  V* const values = reinterpret_cast<V*>(result.mutable_data());
  PoolVector<PairsView<V, I>> rest = views_of<V, I>(streams);
  MeanTile<V, I> tile;
  for (std::uint64_t offset = 0; offset < range.size(); offset += kTileValues) {
    const std::size_t count = std::min<std::uint64_t>(kTileValues, range.size() - offset);
    tile.start(range.begin + offset);
    for (std::size_t s = 0; s < streams.size(); ++s) {
      const double factor = factor_as<V>(factors[s]);
      if (streams[s].is_dense())
        tile.add_dense(streams[s].values_buffer().as<V>().data() + offset, count, factor);
      else
        tile.add_sparse(rest[s], factor);
    }
    tile.emit_dense(values + offset, count);
  }
  return AnyStream::dense(first.type(), first.dimension(), range, std::move(result));
}

template <class V>
AnyStream means_of(std::span<const AnyStream> streams, std::span<const double> factors, Layout layout) {
  return visit_index_type(streams.front().dimension(), [&]<class I>() {
    return layout == Layout::dense ? dense_means<V, I>(streams, factors) : sparse_means<V, I>(streams, factors);
  });
}

}  // namespace

AnyStream mean_of_holders(std::span<const AnyStream> streams, std::span<const double> factors, KernelReport* report) {
  assert(!streams.empty() && factors.size() == streams.size());
  require_alike(streams, Op::sum());
  const AnyStream& first = streams.front();
  if (is_integer(first.type())) {
    throw Error(ErrorKind::bad_input,
                fmt::format("a mean of {} is no {}", to_string(first.type()), to_string(first.type())));
  }
  if (std::ranges::any_of(streams, &AnyStream::is_phantom)) {
    return reduce_many(streams, Op::sum(), report, LayoutChoice::sparse);  // as many items, as large a result
  }
  const Layout layout = layout_of_result(streams, first.range(), LayoutChoice::sparse);
  if (report != nullptr) *report += items_of(streams, first.range(), layout);
  if (first.type() == ValueType::f32) return means_of<float>(streams, factors, layout);
  if (first.type() == ValueType::f64) return means_of<double>(streams, factors, layout);
  PoolVector<AnyStream> widened;
  for (const AnyStream& stream : streams) widened.push_back(convert(stream, ValueType::f32));
  return convert(means_of<float>(widened, factors, layout), first.type(), report);
}

}  // namespace tulle
