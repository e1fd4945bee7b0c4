// A binomial tree over P ranks, rooted anywhere: depth ⌈log2 P⌉.
//
// Ranks are renumbered so that the root is 0. The parent of v is v without its lowest set bit; its children are
// v + 2^i for every 2^i below that bit (any 2^i for the root) that stays below P.
#pragma once

namespace tulle::patterns {

class Binomial {
 public:
  Binomial(int rank, int size, int root) : size_(size), root_(root), position_((rank + size - root) % size) {}

  bool is_root() const { return position_ == 0; }
  /// REQUIRES: !is_root().
  int parent() const { return rank_at(position_ & (position_ - 1)); }

  /// Calls visit(rank) for every child, those with the smallest subtrees first.
  template <class Visit>
  void for_each_child(Visit visit) const {
    for (int bit = 1; has_child(bit); bit *= 2) visit(child(bit));
  }
  /// For loops that await between children: bit = 1, 2, 4, … while has_child(bit).
  bool has_child(int bit) const {
    return (position_ == 0 || bit < (position_ & -position_)) && position_ + bit < size_;
  }
  int child(int bit) const { return rank_at(position_ + bit); }

 private:
  int rank_at(int position) const { return (position + root_) % size_; }

  int size_;
  int root_;
  int position_;
};

}  // namespace tulle::patterns
