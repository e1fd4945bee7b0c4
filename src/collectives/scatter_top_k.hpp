// Spar-Reduce-Scatter among the ranks of a team: what spar_reduce_scatter and spardl have in common.
#pragma once

#include "collectives/teams.hpp"

namespace tulle {

/// How many values a block may have: of blocks that are sent, and of the rank's own in the end.
struct ScatterQuota {
  std::uint64_t sent = 0;  ///< of all blocks together
  std::uint64_t kept = 0;  ///< of all blocks together
  std::uint64_t dimension = 0;
  std::uint64_t turn = 0;  ///< which blocks get what does not divide

  std::uint64_t of_sent(int blocks, int block) const { return quota(sent, dimension, blocks, block, turn); }
  std::uint64_t of_kept(int blocks, int block) const { return quota(kept, dimension, blocks, block, turn); }
};

/// Gives the rank the largest values of its block of the team's sum. ⌈log2⌉ of the team's size rounds, from
/// `first_step` on.
Task<AnyStream> scatter_top_k(Exchange& exchange, Ledger& ledger, const TeamPlace& place, ScatterQuota quota,
                              Step first_step);

}  // namespace tulle
