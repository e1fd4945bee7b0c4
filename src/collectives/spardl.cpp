// spardl: sparse allreduce of accumulators in 2·⌈log2 P⌉ rounds on any number of ranks. SparDL.
//
// How it works. *Scatter*: spar_reduce_scatter gives every rank the largest k/P values of its block of the sum.
// *Gather*: the blocks travel to everyone in ⌈log2 P⌉ rounds (Bruck), encoded once and forwarded as they are.
//
// With d *teams* the P/d ranks of each team scatter among themselves, blocks of d·k/P values. The d ranks of equal
// position then synchronize their block, by r_sag (exchanges in powers of two, cut down after each) or by b_sag
// (Bruck, of h values from each, cut down at the end; a controller finds h). Then each team gathers.
//
//   depth     2·⌈log2(P/d)⌉ + ⌈log2 d⌉
//   messages  the same per rank
//   data      2·k·(P−1)/P pairs through each port without teams
//             k·((2P−2d)/P + (d/P)·log2 d) with r_sag
//             between k·(dP+P−2d)/(Pd) and k·(d²+2P−3d)/P with b_sag

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/scatter_top_k.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"
#include "comm/bruck.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle {

CallOptions spardl_as_published(CallOptions options) {
  options.algorithm = "spardl";
  options.teams = 2;
  options.team_gather = "r_sag";
  return options;
}

}  // namespace tulle

namespace tulle::algorithms {
namespace {

constexpr Step kScatterStep = 0, kTeamStep = after_rounds(kScatterStep), kGatherStep = after_gather(kTeamStep);

Task<TeamBlock> synchronize_teams(Exchange& exchange, Ledger& ledger, const TeamPlace& place, AnyStream block,
                                  std::uint64_t keep, TeamGather gather) {
  if (gather == TeamGather::r_sag) return r_sag(exchange, ledger, place, std::move(block), keep, kTeamStep);
  return b_sag(exchange, ledger, place, std::move(block), keep, kTeamStep);
}

}  // namespace

Task<Outcome> spardl(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState* state) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  const TeamPlace place = TeamPlace::of(exchange.rank(), exchange.size(), options.teams);
  const TeamGather gather = team_gather_of(options);
  ScatterQuota quota{options.k, options.k, exchange.dimension(), options.step.value_or(operation.sequence())};
  TeamGatherState first_call;
  TeamGatherState& h = state != nullptr ? state->team_gather : first_call;
  if (gather == TeamGather::b_sag) {
    prepare(h, options.k, exchange.size(), options.teams);
    quota.kept = values_of_team(h, place.team_size);
  }

  TeamBlock block;
  block.stream = co_await scatter_top_k(exchange, ledger, place, quota, kScatterStep);
  if (gather != TeamGather::none) {
    const std::uint64_t keep = quota.of_sent(place.team_size, place.position);
    block = co_await synchronize_teams(exchange, ledger, place, std::move(block.stream), keep, gather);
  }

  // All teams hold the same block, so they code it alike; how much came out of b_sag travels along.
  Part part = exchange.with_coded_values({std::move(block.stream), block.came_out, {}}, kGatherStep,
                                         {place.position, {place.team, place.teams}});
  const auto mate = [](const void* context, int position) {
    return static_cast<const TeamPlace*>(context)->team_mate(position);
  };
  const Members team{place.position, place.team_size, mate, &place};
  Part result = co_await gather_blocks(exchange, std::move(part), kGatherStep, team, LayoutChoice::sparse);
  ledger.settle(result.stream);
  if (gather == TeamGather::b_sag) update(h, static_cast<double>(result.contributed));
  result.contributed = 0;
  co_return exchange.outcome(std::move(result), ledger);
}

double spardl_cost(const CostInput& input) {
  const int team_size = input.ranks / input.teams;
  const double block = input.dimension / team_size;
  const double block_bytes = input.coded_stream_bytes(input.nnz / team_size, block);
  const double between_teams = patterns::bruck_rounds(input.teams) * message_seconds(input.profile, block_bytes);
  return scatter_top_k_seconds(input, input.teams) + between_teams +
         patterns::bruck_rounds(team_size) * input.profile.alpha_seconds +
         (team_size - 1) * block_bytes * input.profile.beta_seconds_per_byte +
         2 * input.coding_seconds(input.nnz, input.dimension) + join_seconds(input, input.nnz);
}

}  // namespace tulle::algorithms
