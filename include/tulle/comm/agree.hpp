// Agreement among the ranks that are left: the base of going on after a death.
//
// agree() is collective among the living. It works on a communicator that is broken, and it waits for nobody who is
// dead. docs/faults.md says what is promised on which transport.
//
// Threads: any thread may call, one agreement of a communicator at a time. Others may count on this rank's answers
// after its call has returned: it gives them whenever its engine makes progress.
#pragma once

#include <cstdint>
#include <vector>

#include "tulle/comm/communicator.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// How many of the last epoch's survivors it takes to decide.
enum class Quorum : std::uint8_t {
  /// More than half. Whatever is lost, late or taken for dead, no two ranks ever get different answers.
  majority,
  /// Whoever is left, down to one: what two ranks need to survive a death. A rank counts as dead where its transport
  /// says so and not because it is silent. Unsafe where that is wrong: two halves of a network that fell apart both
  /// go on, with different answers.
  any,
};

/// REQUIRES: the same quorum on all ranks.
struct AgreeOptions {
  double deadline_seconds = 0;  ///< 0: the communicator's default
  /// With a majority, whoever has been silent for so long is left out: a rank that has not called, or that does not
  /// answer. Too small: a rank that computes is excluded. Larger: a rank that was stopped holds up the others longer.
  /// 0: an eighth of the deadline. Refused below 100 µs, in which no answer comes, and without an end.
  double patience_seconds = 0;
  Quorum quorum = Quorum::majority;
};

/// The same on all ranks that get it.
struct Agreement {
  std::uint16_t epoch = 0;            ///< counts the agreements that led here; wraps around
  std::vector<int> survivors;         ///< ranks of the communicator, increasing; the caller's is one of them
  std::vector<std::uint64_t> values;  ///< what each of them gave

  friend bool operator==(const Agreement&, const Agreement&) = default;
};

/// Agrees on who is left, and on what each of them says.
///
/// Every survivor of the last epoch calls it as many times; the first epoch has all ranks. No two ranks return
/// different answers for one epoch, also where one of them dies right after. Without further faults all the living
/// return; each sends O(P) messages of O(P) bytes at most.
/// Throws excluded where this rank is not among the survivors, or cannot know what they agreed on: then it may call
/// again, which goes on with the same epoch, and its first value may still be the one that counts. Throws mismatch
/// where the others call shrink(), and bad_input where an agreement of this rank's is under way.
Agreement agree(Communicator& communicator, std::uint64_t value, const AgreeOptions& options = {});
Request<Agreement> iagree(Communicator& communicator, std::uint64_t value, const AgreeOptions& options = {});

}  // namespace tulle
#pragma GCC visibility pop
