// The sum of many sparse rows as a sorted stream, at a cost of the rows' non-zeros.
//
// How it works. A dense array takes the sums, and a bitmap remembers which places were touched, with a second bitmap
// of the first one's words and a third of the second one's on top. Emitting walks the bitmaps, so indices come out
// sorted without a sort, and clears what it reads. Threads each take a range of features, so that the order of
// summation, and with it every bit, is the same for any number of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "linear/batches.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::linear {

class GradientAccumulator {
 public:
  /// Sums of `dimension` places.
  explicit GradientAccumulator(std::uint64_t dimension);

  void add(std::uint64_t place, float value) {
    sums_[place] += value;
    std::uint64_t& word = touched_[place / 64];
    if (word == 0) touch_word(place / 64);
    word |= std::uint64_t{1} << (place % 64);
  }
  /// Adds coefficients[r]·row r for all rows, at `offset` + index. REQUIRES: one coefficient a row.
  void add_rows(const Batch& batch, std::span<const float> coefficients, std::uint64_t offset, int threads);

  /// What was added, as a stream of `dimension` + tail.size() values that ends with `tail`. Starts again from nothing.
  AnyStream take(std::span<const float> tail = {});

 private:
  void add_range(const Batch& batch, std::span<const float> coefficients, std::uint64_t offset, std::uint64_t begin,
                 std::uint64_t end);
  void touch_word(std::uint64_t word) {
    std::uint64_t& group = touched_words_[word / 64];
    // Threads have words of the two lower bitmaps to themselves, but not of this one.
    if (group == 0) std::atomic_ref(touched_groups_[word / 4096]).fetch_or(std::uint64_t{1} << (word / 64 % 64));
    group |= std::uint64_t{1} << (word % 64);
  }
  template <class Read, class Visit>
  void walk(Read read, Visit visit);
  std::uint64_t count();

  std::uint64_t dimension_;
  PoolVector<float> sums_;
  PoolVector<std::uint64_t> touched_;         // a bit a place
  PoolVector<std::uint64_t> touched_words_;   // a bit a word of touched_
  PoolVector<std::uint64_t> touched_groups_;  // a bit a word of touched_words_
};

}  // namespace tulle::linear
