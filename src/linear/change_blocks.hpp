// How coordinate descent's changes travel.
//
// Each rank owns a *slice* of the places. Its *block* of what travels holds the slice and then its votes: so blocks of
// different ranks never overlap, and gathering them is joining them, sparse or dense.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::linear {

struct Change {
  std::uint64_t place;
  float amount;
};

enum Vote : std::size_t { kStopVote, kSaveVote, kVotes };
using Votes = std::array<float, kVotes>;

class ChangeBlocks {
 public:
  /// Rank r owns the places [cuts[r], cuts[r + 1]).
  explicit ChangeBlocks(std::vector<std::uint64_t> cuts) : cuts_(std::move(cuts)) {}

  int ranks() const { return static_cast<int>(cuts_.size()) - 1; }
  std::uint64_t dimension() const { return cuts_.back() + cuts_.size() * kVotes - kVotes; }
  bool owns(int rank, std::uint64_t place) const { return cut(rank) <= place && place < cut(rank + 1); }
  Range block(int rank) const { return {cut(rank) + shift(rank), cut(rank + 1) + shift(rank + 1)}; }

  /// The rank's block, sparse. REQUIRES: changes of its own places, sorted.
  AnyStream as_sparse(int rank, std::span<const Change> changes, const Votes& votes) const;

  /// Calls change(rank, place, amount) and vote(number) for what is not zero.
  template <class OnChange, class OnVote>
  void read(const AnyStream& gathered, OnChange change, OnVote vote) const {
    int rank = 0;
    const auto values = gathered.values_buffer().as<float>();
    const auto indices = gathered.indices_buffer().as<std::uint32_t>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      const std::uint64_t index = gathered.is_dense() ? i : indices[i];
      while (index >= block(rank).end) ++rank;
      const std::uint64_t place = index - shift(rank);
      if (place < cut(rank + 1)) {
        change(rank, place, values[i]);
      } else {
        vote(static_cast<Vote>(place - cut(rank + 1)));
      }
    }
  }

 private:
  std::uint64_t cut(int rank) const { return cuts_[static_cast<std::size_t>(rank)]; }
  // Of the places of a rank, by the votes of those before it.
  static std::uint64_t shift(int rank) { return static_cast<std::uint64_t>(rank) * kVotes; }

  std::vector<std::uint64_t> cuts_;
};

}  // namespace tulle::linear
