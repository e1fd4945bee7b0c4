#include "collectives/teams.hpp"
#include "collectives/gather.hpp"
#include "collectives/split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tulle/collectives/collectives.hpp"
#include "tulle/select/top_k.hpp"

namespace tulle {
namespace {

// Of the controller, in parts of the range of h.
constexpr double kFirstStep = 0.01, kLeastStep = 1e-4;

/// The `keep` largest; the others are dropped by `sharers` ranks at once.
AnyStream keep_largest(Exchange& exchange, Ledger& ledger, const AnyStream& sum, std::uint64_t keep, Sharers sharers) {
  exchange.operation().charge({.sparse_items = sum.nnz()});
  SplitStream split = split_top_k(sum, keep);
  ledger.drop(std::move(split.rest), sharers);
  return std::move(split.kept);
}

}  // namespace

// Value i of `total` belongs at i·dimension/total. Every turn moves all of them on by a block, around the end.
std::uint64_t quota(std::uint64_t total, std::uint64_t dimension, int blocks, int block, std::uint64_t turn) {
  using Wide = unsigned __int128;
  if (dimension == 0) return 0;
  const auto count = static_cast<std::uint64_t>(blocks);
  const auto moved = static_cast<std::uint64_t>(Wide{turn % count} * total * dimension / count % dimension);
  const auto up_to = [&](std::uint64_t end) {
    return static_cast<std::uint64_t>((Wide{total} * end + moved) / dimension);
  };
  const Range range = block_of(dimension, blocks, block);
  return up_to(range.end) - up_to(range.begin);
}

TeamGather team_gather_of(const CallOptions& options) {
  const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(options.teams));
  if (options.team_gather == kAuto) {
    return options.teams == 1 ? TeamGather::none : is_power_of_two ? TeamGather::r_sag : TeamGather::b_sag;
  }
  if (options.team_gather == "b_sag") return options.teams == 1 ? TeamGather::none : TeamGather::b_sag;
  if (options.team_gather != "r_sag") {
    throw Error(ErrorKind::bad_input,
                fmt::format("no team gather is called '{}'; there are {}, r_sag, b_sag", options.team_gather, kAuto));
  }
  if (!is_power_of_two) {
    throw Error(ErrorKind::bad_input,
                fmt::format("r_sag wants a power of two of teams, not {}; b_sag takes any", options.teams));
  }
  return options.teams == 1 ? TeamGather::none : TeamGather::r_sag;
}

void prepare(TeamGatherState& state, std::uint64_t k, int ranks, int teams) {
  const double least = static_cast<double>(k) / ranks, most = least * teams;
  if (state.target == static_cast<double>(k) && state.least_h == least && state.most_h == most) return;
  state = {.target = static_cast<double>(k),
           .h = least,
           .least_h = least,
           .most_h = most,
           .step = kFirstStep * (most - least),
           .moved_alike = false};
}

std::uint64_t values_of_team(const TeamGatherState& state, int team_size) {
  return static_cast<std::uint64_t>(std::max(1LL, std::llround(state.h * team_size)));
}

void update(TeamGatherState& state, double came_out) {
  state.came_out = came_out;
  const bool shall_grow = came_out <= state.target;
  const bool goes_on = shall_grow == (state.step > 0);
  if (!goes_on) {
    state.step *= -0.5;
    state.moved_alike = false;
  } else {
    if (state.moved_alike) state.step *= 2;
    state.moved_alike = !state.moved_alike;
  }
  // Turn after turn the step would vanish, and a later change would never be followed.
  const double least_step = kLeastStep * (state.most_h - state.least_h);
  if (std::abs(state.step) < least_step) state.step = std::copysign(least_step, state.step);
  const double wanted = state.h + state.step;
  state.h = std::clamp(wanted, state.least_h, state.most_h);
  if (state.h == wanted) return;
  // At an end of its range h stands still. A step that went on doubling there would take as long to come back.
  const double first_step = kFirstStep * (state.most_h - state.least_h);
  if (std::abs(state.step) > first_step) state.step = std::copysign(first_step, state.step);
  state.moved_alike = false;
}

Task<TeamBlock> r_sag(Exchange& exchange, Ledger& ledger, const TeamPlace& place, AnyStream block, std::uint64_t keep,
                      Step first_step) {
  TeamBlock mine{std::move(block), 0};
  Step step = first_step;
  for (int distance = 1; distance < place.teams; distance *= 2, ++step) {
    const int partner = place.counterpart(place.team ^ distance);
    // The teams of a group hold the same values, so all of them code as the first one does.
    const int place_in_group = place.team & (distance - 1);
    const int first_of_group = place.counterpart(place.team - place_in_group);
    const Sharers group{place_in_group, distance};
    Part part = exchange.with_coded_contribution({mine.stream, 0, {}}, step, {first_of_group, group});
    exchange.send(partner, step, part);
    Incoming message = co_await exchange.operation().receive(partner, step);
    Part operands[] = {std::move(part), exchange.open(std::move(message))};
    if ((place.team & distance) != 0) std::swap(operands[0], operands[1]);
    const Part sum = exchange.reduce_many(operands, LayoutChoice::sparse);
    mine.came_out = sum.stream.nnz();
    mine.stream = keep_largest(exchange, ledger, sum.stream, keep, {place.team & (2 * distance - 1), 2 * distance});
  }
  co_return mine;
}

Task<TeamBlock> b_sag(Exchange& exchange, Ledger& ledger, const TeamPlace& place, AnyStream block, std::uint64_t keep,
                      Step first_step) {
  const auto rank_of = [](const void* context, int team) {
    return static_cast<const TeamPlace*>(context)->counterpart(team);
  };
  Part part = exchange.with_coded_contribution({std::move(block), 0, {}}, first_step);
  const Members counterparts{place.team, place.teams, rank_of, &place};
  const PoolVector<Part> parts = co_await gather_parts(exchange, std::move(part), first_step, counterparts);
  const Part sum = exchange.reduce_many(parts, LayoutChoice::sparse);
  TeamBlock mine{{}, sum.stream.nnz()};
  mine.stream = keep_largest(exchange, ledger, sum.stream, keep, {place.team, place.teams});
  co_return mine;
}

}  // namespace tulle
