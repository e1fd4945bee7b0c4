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

  void add(std::uint64_t place, float value) { distinct_ += put(place, value); }
  /// Adds coefficients[r]·row r for all rows, at `offset` + index. REQUIRES: one coefficient a row.
  void add_rows(const Batch& batch, std::span<const float> coefficients, std::uint64_t offset, int threads);

  /// What was added, as a stream of `dimension` + tail.size() values that ends with `tail`. Starts again from nothing.
  AnyStream take(std::span<const float> tail = {});

 private:
  /// Gives 1 where the place was not touched before, else 0.
  std::uint64_t put(std::uint64_t place, float value) {
    sums_[place] += value;
    std::uint64_t& word = touched_[place / 64];
    if (word == 0) touch_word(place / 64);
    const std::uint64_t bit = std::uint64_t{1} << (place % 64);
    const bool is_first = (word & bit) == 0;
    word |= bit;
    return is_first;
  }
  /// Adds what is in [begin, end) and gives how many places were touched for the first time.
  std::uint64_t add_range(const Batch& batch, std::span<const float> coefficients, std::uint64_t offset,
                          std::uint64_t begin, std::uint64_t end);
  void ask_for(std::uint64_t offset, std::span<const std::uint32_t> indices);
  template <class Value>
  std::uint64_t add_row(std::uint64_t offset, std::span<const std::uint32_t> indices, Value value);
  void touch_word(std::uint64_t word) {
    std::uint64_t& group = touched_words_[word / 64];
    // Threads have words of the two lower bitmaps to themselves, but not of this one.
    if (group == 0) std::atomic_ref(touched_groups_[word / 4096]).fetch_or(std::uint64_t{1} << (word / 64 % 64));
    group |= std::uint64_t{1} << (word % 64);
  }
  template <class Visit>
  void walk(Visit visit);

  std::uint64_t dimension_;
  std::uint64_t distinct_ = 0;  // places that were touched
  PoolVector<float> sums_;
  PoolVector<std::uint64_t> touched_;         // a bit a place
  PoolVector<std::uint64_t> touched_words_;   // a bit a word of touched_
  PoolVector<std::uint64_t> touched_groups_;  // a bit a word of touched_words_
};

}  // namespace tulle::linear
