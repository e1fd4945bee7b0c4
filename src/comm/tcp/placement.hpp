// Where the ranks of a job are.
#pragma once

#include <span>

#include "comm/tcp/card.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/comm/profile.hpp"

namespace tulle {

/// The same on all ranks: it follows from the cards.
struct Placement {
  PoolVector<int> nodes;  ///< of each rank: the lowest rank there
  bool on_one_node = true;
  double ranks_per_core = 1;  ///< of the fullest node, at least 1
  bool shares_cores = false;  ///< a machine has more ranks than cores; containers of one machine count together
};
Placement place_ranks(std::span<const Card> cards);

/// Until a probe measures.
Profile profile_of(const Placement& placement);

}  // namespace tulle
