// Pieces of unequal sizes on their way to everyone: what each port carries, and how they are cut down or balanced
// first.
//
// Rank r holds sizes[r] values; all pieces follow one another. They travel *as they are*, by Bruck's rounds or around
// the ring (gather.hpp), or are *balanced* first: cut into P equal pieces, which those who hold the values send to
// those who get them. Everyone knows all sizes, so everyone computes the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tulle/base/buffer.hpp"

namespace tulle::patterns {

using Sizes = PoolVector<std::uint64_t>;

inline std::uint64_t total_of(std::span<const std::uint64_t> sizes) {
  std::uint64_t total = 0;
  for (const std::uint64_t size : sizes) total += size;
  return total;
}

/// `total` values in `count` equal pieces: where the n-th begins.
inline std::uint64_t equal_cut(std::uint64_t total, std::uint64_t count, std::uint64_t n) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(total) * n / count);
}

/// The pieces cut down to `total` values, each in proportion. REQUIRES: total <= total_of(sizes).
inline Sizes scaled_to(std::span<const std::uint64_t> sizes, std::uint64_t total) {
  const std::uint64_t all = std::max<std::uint64_t>(total_of(sizes), 1);
  Sizes scaled;
  std::uint64_t before = 0;
  for (const std::uint64_t size : sizes) {
    scaled.push_back(equal_cut(total, all, before + size) - equal_cut(total, all, before));
    before += size;
  }
  return scaled;
}

/// The pieces cut down to at most `most` values each.
inline Sizes capped_at(std::span<const std::uint64_t> sizes, std::uint64_t most) {
  Sizes capped(sizes.begin(), sizes.end());
  for (std::uint64_t& size : capped) size = std::min(size, most);
  return capped;
}

/// `total` values in equal pieces.
inline Sizes equal_pieces(std::uint64_t total, std::size_t count) {
  Sizes equal;
  for (std::size_t n = 0; n < count; ++n) equal.push_back(equal_cut(total, count, n + 1) - equal_cut(total, count, n));
  return equal;
}

/// Who gets which values when pieces are balanced.
class Balance {
 public:
  struct Piece {
    int to;
    std::uint64_t first;  ///< position among the owner's values
    std::uint64_t count;
  };

  explicit Balance(std::span<const std::uint64_t> sizes) : sizes_(sizes), total_(total_of(sizes)) {}

  /// An owner of nothing still hands on its region, to whoever gets what follows.
  PoolVector<Piece> pieces_of(int owner) const {
    const std::uint64_t size = sizes_[static_cast<std::size_t>(owner)];
    const std::uint64_t begin = total_of(sizes_.first(static_cast<std::size_t>(owner)));
    if (size == 0) return {{holder_of(begin), 0, 0}};
    PoolVector<Piece> pieces;
    for (std::uint64_t at = begin; at < begin + size;) {
      const int to = holder_of(at);
      const std::uint64_t end = std::min(begin + size, cut(to + 1));
      pieces.push_back({to, at - begin, end - at});
      at = end;
    }
    return pieces;
  }
  /// Of its own values, how many the rank keeps. `begin` is the position of its first one among all.
  std::uint64_t kept_by(int rank, std::uint64_t begin) const {
    const std::uint64_t end = begin + sizes_[static_cast<std::size_t>(rank)];
    const std::uint64_t from = std::max(begin, cut(rank)), to = std::min(end, cut(rank + 1));
    return to > from ? to - from : 0;
  }

 private:
  std::uint64_t cut(int rank) const { return equal_cut(total_, sizes_.size(), static_cast<std::uint64_t>(rank)); }
  int holder_of(std::uint64_t at) const {
    int rank = static_cast<int>(sizes_.size()) - 1;
    while (cut(rank) > at) --rank;
    return rank;
  }

  std::span<const std::uint64_t> sizes_;
  std::uint64_t total_;
};

/// Values that each port carries.
struct PortLoad {
  PoolVector<std::uint64_t> sent;
  PoolVector<std::uint64_t> received;

  explicit PortLoad(std::size_t ranks) : sent(ranks), received(ranks) {}
  std::uint64_t busiest() const { return std::max(std::ranges::max(sent), std::ranges::max(received)); }
};

/// Adds a gather of pieces as they are, whichever of its two ways carries more.
inline void add_gather(PortLoad& load, std::span<const std::uint64_t> sizes) {
  const std::size_t ranks = sizes.size();
  PoolVector<std::uint64_t> before(2 * ranks + 1);  // values of the pieces before the n-th, twice around
  for (std::size_t n = 0; n < 2 * ranks; ++n) before[n + 1] = before[n] + sizes[n % ranks];
  const std::uint64_t total = before[ranks];
  for (std::size_t rank = 0; rank < ranks && ranks > 1; ++rank) {
    std::uint64_t by_rounds = 0;
    for (std::size_t distance = 1; distance < ranks; distance *= 2) {
      by_rounds += before[rank + std::min(distance, ranks - distance)] - before[rank];
    }
    load.sent[rank] += std::max(by_rounds, total - sizes[(rank + ranks - 1) % ranks]);
    load.received[rank] += total - sizes[rank];
  }
}

inline PortLoad load_as_they_are(std::span<const std::uint64_t> sizes) {
  PortLoad load(sizes.size());
  add_gather(load, sizes);
  return load;
}

inline PortLoad load_balanced(std::span<const std::uint64_t> sizes) {
  PortLoad load(sizes.size());
  const Balance balance(sizes);
  const Sizes equal = equal_pieces(total_of(sizes), sizes.size());
  std::uint64_t begin = 0;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const std::uint64_t kept = balance.kept_by(static_cast<int>(rank), begin);
    load.sent[rank] = sizes[rank] - kept;
    load.received[rank] = equal[rank] - kept;
    begin += sizes[rank];
  }
  add_gather(load, equal);
  return load;
}

/// The largest number in [least, most] that `fits`, by halving; `least` where none does.
template <class Fits>
std::uint64_t largest_that_fits(std::uint64_t least, std::uint64_t most, Fits fits) {
  if (most <= least || fits(most)) return std::max(least, most);
  while (most - least > 1) {
    const std::uint64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least;
}

}  // namespace tulle::patterns
