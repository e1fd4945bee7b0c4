// Everyone's part to everyone, for algorithms that end so.
//
// How it works. Small parts travel by Bruck's allgather: ⌈log2 P⌉ rounds, every message a bundle. A part that is worth
// a message of its own goes around the *ring* instead, from every rank to the one before it, and Bruck's rounds carry
// its head alone. Two ranks never exchange large blocks with each other, so that a connection carries data one way, and
// blocks are decoded while others travel. The owner decides by the size of its own part: nobody has to agree. All parts
// are encoded once and forwarded as they are.
//
//   depth     ⌈log2 P⌉, and P − 2 more where a part is large
//   messages  ⌈log2 P⌉ and as many as there are large parts of others
//   data      every part but the own one, once, through each port
#pragma once

#include "collectives/exchange.hpp"
#include "collectives/split.hpp"

namespace tulle {

/// Whether a part of `bytes` is large: it goes from member to member by itself, and not in the rounds of the others.
bool goes_around(const Profile& profile, double bytes, int members);

/// Everyone's part, by member. Uses the steps from `first_step` up to after_gather(first_step).
Task<PoolVector<Part>> gather_parts(Exchange& exchange, Part mine, Step first_step, Members members);
Task<PoolVector<Part>> gather_parts(Exchange& exchange, Part mine, Step first_step);

/// The same for blocks that follow one another, joined. Sparse blocks are decoded into their places in the result;
/// a dense result is made in `result` where that is given. Without a rule, layouts follow the coded sizes.
Task<Part> gather_blocks(Exchange& exchange, Part mine, Step first_step, Members members,
                         std::optional<LayoutRule> rule = {}, Buffer result = {});
Task<Part> gather_blocks(Exchange& exchange, Part mine, Step first_step, std::optional<LayoutRule> rule = {},
                         Buffer result = {});

}  // namespace tulle
