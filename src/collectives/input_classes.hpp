// What calls on streams of one dimension and type have taught, apart for each class of input.
//
// How it works. Calls are of one class where their ranks bring about as many values, within a decade: a sum of ten
// entries and a dense one want different rows, and what either takes says nothing of the other. Calls that tell a
// density have classes of their own. Of other calls a rank knows its own input alone, so ranks *agree*: a gather of a
// few bytes, in ⌈log2 P⌉ messages, gives them the mean. Where the class that the order of earlier calls lets them
// *expect* takes so little time that the gather would show, they do without it; a call that then turns out to be of
// another class ran a row that was not the best, and is remembered where it belongs. All that is looked at is equal on
// all ranks.
#pragma once

#include <deque>

#include "collectives/learning.hpp"

namespace tulle {

struct InputClass {
  double nnz = 0;  ///< of one rank, in its last call
  AlgorithmState state;
};

class InputClasses {
 public:
  /// The class of calls whose ranks have so many values on average; a new one where there is none.
  InputClass& of(double nnz);
  /// The class of calls that tell this density.
  InputClass& told(double density);
  /// The class that followed when calls came in this order before. Null where nobody knows.
  InputClass* expected();

  /// True where a gather before a call of this class would cost little beside it.
  bool can_afford_agreement(const InputClass& expected, const CostInput& shape) const;
  /// Ranks have agreed, which took them so long.
  void note_agreement(double slowest_seconds);

  /// Takes in a call that ran what suits `assumed`, where that is known.
  void learn(InputClass* assumed, bool is_told, const Lesson& lesson, const Outcome& outcome);

  /// A checksum of all that was learned. Ranks where it differs would choose different rows: they forget it.
  std::uint32_t digest() const { return digest_; }
  void forget();

  double my_agreement_seconds = 0;  ///< the last one, on this rank: not equal on all
  InUse in_use;

 private:
  std::size_t place_of(double nnz);

  std::deque<InputClass> classes_;  ///< stay where they are
  std::deque<std::pair<int, InputClass>> told_;
  PoolVector<std::uint8_t> order_;  ///< of the last calls' classes
  std::uint32_t digest_ = 0;
  double agreement_seconds_ = 0;  ///< the shortest on the slowest rank
};

/// What blocking calls on streams of this dimension and type have taught on this channel.
InputClasses& history_of(const Communicator& communicator, const Shape& shape);

}  // namespace tulle
