#include "select/split.hpp"

#include <algorithm>

#include "select/kth_largest.hpp"
#include "stream/dispatch.hpp"
#include "stream/pairs.hpp"

namespace tulle {
namespace {

// Calls `function` with a function object for keys: where both sides count, one without a branch.
template <class V, class Function>
decltype(auto) visit_key(Side side, Function&& function) {
  if (side == Side::both) return function([](V value) { return magnitude_key(value); });
  return function([side](V value) { return key_of(value, side); });
}

template <class V>
std::span<const V> values_of(const AnyStream& stream) {
  return stream.values_buffer().as<V>();
}

// Every pair is written to both parts and the next one overwrites it where it does not belong: no branch per pair.
template <class V, class I>
SplitStream split_pairs(const AnyStream& stream, Side side, Key low, std::uint64_t ties) {
  const std::size_t kept_most = count_at_least(stream, side, low);
  const auto pairs = pairs_of<V, I>(stream);
  PairsBuffer<V, I> kept(kept_most + 1);
  PairsBuffer<V, I> rest(pairs.size + 1);
  const PairsTarget<V, I> kept_target = kept.target();
  const PairsTarget<V, I> rest_target = rest.target();
  std::size_t kept_size = 0;
  for (std::size_t i = 0; i < pairs.size; ++i) {
    const Key key = key_of(pairs.values[i], side);
    const bool tied = key == low && ties > 0;
    const bool keep = key > low || tied;
    ties -= tied;
    kept_target.indices[kept_size] = rest_target.indices[i - kept_size] = pairs.indices[i];
    kept_target.values[kept_size] = rest_target.values[i - kept_size] = pairs.values[i];
    kept_size += keep;
  }
  return {std::move(kept).to_stream(stream, kept_size), std::move(rest).to_stream(stream, pairs.size - kept_size)};
}

// The same without the others.
template <class V, class I>
AnyStream pairs_above(const AnyStream& stream, Side side, Key low, std::uint64_t k) {
  std::uint64_t ties = k - count_at_least(stream, side, low + 1);
  const auto pairs = pairs_of<V, I>(stream);
  PairsBuffer<V, I> kept(k + 1);
  const PairsTarget<V, I> target = kept.target();
  std::size_t size = 0;
  for (std::size_t i = 0; i < pairs.size; ++i) {
    const Key key = key_of(pairs.values[i], side);
    const bool tied = key == low && ties > 0;
    ties -= tied;
    target.indices[size] = pairs.indices[i];
    target.values[size] = pairs.values[i];
    size += key > low || tied;
  }
  return std::move(kept).to_stream(stream, size);
}

}  // namespace

AnyStream empty_like(const AnyStream& stream) {
  return AnyStream::empty(stream.type(), stream.dimension(), stream.range());
}

Key least_key(const AnyStream& stream, Side side) {
  return visit_compute_type(stream.type(), [&]<class V>() -> Key {
    auto least = std::numeric_limits<BitsOf<V>>::max();
    for (const V value : values_of<V>(stream)) least = std::min(least, key_of(value, side));
    return least;
  });
}

Key kth_key(const AnyStream& stream, Side side, std::uint64_t k) {
  return visit_compute_type(stream.type(), [&]<class V>() -> Key {
    const std::span<const V> values = values_of<V>(stream);
    PoolVector<BitsOf<V>> keys(values.size());
    std::ranges::transform(values, keys.begin(), [side](V value) { return key_of(value, side); });
    return kth_largest(keys, k);
  });
}

std::uint64_t count_at_least(const AnyStream& stream, Side side, Key low) {
  return visit_compute_type(stream.type(), [&]<class V>() -> std::uint64_t {
    return visit_key<V>(side, [&](auto key) {
      std::uint64_t count = 0;
      for (const V value : values_of<V>(stream)) count += key(value) >= low;
      return count;
    });
  });
}

SplitStream split_at_key(const AnyStream& stream, Side side, Key low, std::uint64_t ties) {
  return visit_compute_type(stream.type(), [&]<class V>() {
    return visit_index_type(stream.dimension(), [&]<class I>() { return split_pairs<V, I>(stream, side, low, ties); });
  });
}

AnyStream top_keys(const AnyStream& stream, Side side, std::uint64_t k) {
  if (k == 0) return empty_like(stream);
  if (k >= stream.nnz()) return stream;
  const Key kth = kth_key(stream, side, k);
  return visit_compute_type(stream.type(), [&]<class V>() {
    return visit_index_type(stream.dimension(), [&]<class I>() { return pairs_above<V, I>(stream, side, kth, k); });
  });
}

SplitStream split_top_keys(const AnyStream& stream, Side side, std::uint64_t k) {
  if (k == 0) return {empty_like(stream), stream};
  if (k >= stream.nnz()) return {stream, empty_like(stream)};
  const Key kth = kth_key(stream, side, k);
  return split_at_key(stream, side, kth, k - count_at_least(stream, side, kth + 1));
}

}  // namespace tulle
