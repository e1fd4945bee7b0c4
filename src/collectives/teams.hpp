// Teams of spardl: P ranks as d teams of P/d. Teams reduce apart, then the ranks of equal *position* synchronize.
#pragma once

#include "collectives/ledger.hpp"

namespace tulle {

/// Where a rank stands.
struct TeamPlace {
  int teams = 1;
  int team = 0;
  int position = 0;
  int team_size = 1;

  static TeamPlace of(int rank, int ranks, int teams) {
    const int team_size = ranks / teams;
    return {teams, rank / team_size, rank % team_size, team_size};
  }
  /// The rank at `position` of this rank's team.
  int team_mate(int mate) const { return team * team_size + mate; }
  /// The rank at this rank's position in `other` team.
  int counterpart(int other) const { return other * team_size + position; }
};

/// Of `total` values, how many a block of [0, dimension) may bring: shares by the sizes of blocks, at most a block's
/// size. What is left over goes to other blocks every time, so that none starves where there are fewer values than
/// blocks. REQUIRES: total <= dimension.
std::uint64_t quota(std::uint64_t total, std::uint64_t dimension, int blocks, int block, std::uint64_t turn);

enum class TeamGather { none, r_sag, b_sag };
/// Throws bad_input where the options ask for what there is not.
TeamGather team_gather_of(const CallOptions& options);
inline void check_team_gather(const CallOptions& options) { team_gather_of(options); }

/// h as it stands for this call, a new one where k, the teams or the ranks have changed.
void prepare(TeamGatherState& state, std::uint64_t k, int ranks, int teams);
/// How many values a team brings by that, all blocks together; at least one, else few values for many teams would round
/// to none and no call would deliver anything.
std::uint64_t values_of_team(const TeamGatherState& state, int team_size);
/// Learns that `came_out` values came out of b_sag, of all blocks together.
void update(TeamGatherState& state, double came_out);

/// What synchronizing one block gives: the same for every team.
struct TeamBlock {
  AnyStream stream;
  std::uint64_t came_out = 0;  ///< values before the last selection
};

/// Recursive doubling between teams, the largest `keep` values after every exchange. log2 d rounds.
/// REQUIRES: the teams are a power of two.
Task<TeamBlock> r_sag(Exchange& exchange, Ledger& ledger, const TeamPlace& place, AnyStream block, std::uint64_t keep,
                      Step first_step);
/// Everyone's block to everyone, then the largest `keep` values of the sum. ⌈log2 d⌉ rounds, any d.
Task<TeamBlock> b_sag(Exchange& exchange, Ledger& ledger, const TeamPlace& place, AnyStream block, std::uint64_t keep,
                      Step first_step);

}  // namespace tulle
