// Steps: the numbers that tell the messages of one operation apart. A rank uses each number once with each peer.
//
// How it works. A row declares where each of its *phases* begins: the first at 0, each other one after the phase before
// it, by the function that knows how many numbers such a phase takes at most. So no two phases share a number, however
// many ranks there are and whichever way a gather goes; a row that would run out of numbers does not compile.
#pragma once

#include <stdexcept>

#include "tulle/comm/message.hpp"

namespace tulle {

/// Rounds of any number of ranks that an int can count.
inline constexpr unsigned kMostRounds = 32;
/// Parts of larger gathers all travel in bundles: 16 bits would not do for several phases of a message for each part.
inline constexpr int kMostMembersAlone = 1000;

/// The first step after `count` of them. REQUIRES: 16 bits are enough.
constexpr Step after(Step first, unsigned count) {
  if (first + count > 0xFFFFu) throw std::length_error("an operation has 2^16 steps");
  return static_cast<Step>(first + count);
}

/// After a phase in which a rank sends each peer at most one message.
constexpr Step after_message(Step first) { return after(first, 1); }
/// After a phase of ⌈log2 P⌉ rounds, numbered from `first` on.
constexpr Step after_rounds(Step first) { return after(first, kMostRounds); }
/// After gather_parts() or gather_blocks(): rounds, then a step for each part that comes alone.
constexpr Step after_gather(Step first) { return after(first, kMostRounds + kMostMembersAlone); }

}  // namespace tulle
