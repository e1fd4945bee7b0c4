// Any number of ranks for algorithms that want a power of two.
//
// With 2^m the largest power of two not above P, the first 2·(P−2^m) ranks form pairs. The odd rank of a pair is
// *extra*: it folds its contribution into the even one first and is told the result last. The others, the *core*,
// number themselves 0 … 2^m−1 in the order of their ranks, so that groups of core ranks stay contiguous.
#pragma once

namespace tulle::patterns {

class Fold {
 public:
  Fold(int rank, int size) : rank_(rank), core_size_(1) {
    while (core_size_ * 2 <= size) core_size_ *= 2;
    extras_ = size - core_size_;
  }

  int core_size() const { return core_size_; }
  bool is_paired() const { return rank_ < 2 * extras_; }
  bool is_extra() const { return is_paired() && rank_ % 2 == 1; }
  /// The other rank of the pair. REQUIRES: is_paired().
  int partner() const { return rank_ ^ 1; }
  /// REQUIRES: !is_extra().
  int core_rank() const { return is_paired() ? rank_ / 2 : rank_ - extras_; }
  /// The rank in the communicator of core rank `core`.
  int rank_of(int core) const { return core < extras_ ? 2 * core : core + extras_; }
  /// Messages one after the other that folding adds.
  static int extra_depth(int size) { return Fold(0, size).extras_ > 0 ? 2 : 0; }

 private:
  int rank_;
  int core_size_;
  int extras_;
};

}  // namespace tulle::patterns
