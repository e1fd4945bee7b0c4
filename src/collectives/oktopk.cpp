// oktopk: sparse allreduce of accumulators in owners' regions that adapt to the data. Li and Hoefler 2022.
//
// How it works. *Select*: a rank takes the values above its *local threshold*, at most k; it finds that exactly every
// τ' calls, or when it has aged, and uses it again in between. *Split*: [0, N) is cut into P *regions*; every τ calls,
// or when some port has carried much more than its part, each rank proposes the cuts that would balance its own values,
// and the mean is taken. Every rank sends each owner the pairs of its region, at most 2·k/P, beginning with its
// right-hand neighbour; the owner sums them. *Offer*: the owner keeps what is above the *global threshold*, that of the
// k largest sums; in a call that *searches* for it, all sums. How many they are, and what the rank's port has carried
// so far, is shared. *Cut*: everyone computes from that how much of each offer may travel, so that no port carries more
// than the paper's bound and no more than k are delivered. *Gather*: where the largest piece is more than four times
// the mean, or the bound asks for it, pieces are *balanced* first; then they travel to everyone. In a search everyone
// keeps the k largest, which set the threshold. Everything that was taken and is not in the result comes back.
//
//   depth     1 + 2·⌈log2 P⌉, 1 more where pieces are balanced, ⌈log2 P⌉ more where cuts are found
//   messages  P − 1 + 2·⌈log2 P⌉ per rank, ⌈log2 P⌉ more where cuts are found, and those of balancing
//   data      at most 3·k·(P−1)/P pairs through each port in every call, searches included

#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/ledger.hpp"
#include "collectives/numbers.hpp"
#include "collectives/patterns/pieces.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/select/top_k.hpp"

namespace tulle::algorithms {
namespace {

using patterns::Balance;
using patterns::Sizes;

constexpr Step kRegionStep = 0, kSplitStep = after_gather(kRegionStep), kOfferStep = after_message(kSplitStep),
               kBalanceStep = after_gather(kOfferStep), kGatherStep = after_message(kBalanceStep);

// Of a call, in parts of k·(P−1)/P pairs: Li and Hoefler's 6·k·(P−1)/P words.
constexpr std::uint64_t kMostParts = 3;
constexpr std::uint64_t kUnbalanced = 4;
// A threshold that lets more than 2·k or fewer than k/2 values pass has aged.
constexpr std::uint64_t kMostPass = 2, kFewestPass = 2;
// To an owner, in parts of k/P. With less, ranks whose values lie elsewhere than the others' would wait; with more, a
// crowded region would use up what the gather needs.
constexpr std::uint64_t kMostToOwner = 2;
// Cuts have aged where a port has carried 3/2 of its part of the split, and may be found again after so many calls:
// where ranks' values lie in different places no cuts suit all of them.
constexpr std::uint64_t kLeastRegionAge = 4;

/// The cuts between P regions of equally many of `stream`'s values.
PoolVector<std::int64_t> balanced_cuts(const AnyStream& stream, int ranks) {
  PoolVector<std::int64_t> cuts;
  for (int rank = 1; rank < ranks; ++rank) {
    const bool is_known = stream.nnz() > 0 && !stream.is_phantom();
    const std::uint64_t cut = is_known ? stream.index_at(block_of(stream.nnz(), ranks, rank).begin)
                                       : block_of(stream.dimension(), ranks, rank).begin;
    cuts.push_back(static_cast<std::int64_t>(cut));
  }
  return cuts;
}

Task<std::vector<std::uint64_t>> agree_on_cuts(Exchange& exchange, const AnyStream& taken) {
  const int ranks = exchange.size();
  PoolVector<std::int64_t> mine = balanced_cuts(taken, ranks);
  const auto proposals = co_await share_numbers(exchange.operation(), std::move(mine), kRegionStep);
  for (int rank = 0; rank < ranks; ++rank) {
    require_cuts(proposals[static_cast<std::size_t>(rank)], rank, exchange.dimension());
  }
  std::vector<std::uint64_t> cuts = {0};
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(ranks); ++i) {
    unsigned __int128 sum = 0;
    for (const auto& proposal : proposals) sum += static_cast<std::uint64_t>(proposal[i]);
    cuts.push_back(static_cast<std::uint64_t>(sum / static_cast<unsigned>(ranks)));
  }
  cuts.push_back(exchange.dimension());
  co_return cuts;
}

/// What was taken, without what would crowd other owners: that waits in the accumulator.
AnyStream without_crowds(Exchange& exchange, Ledger& ledger, AnyStream taken, const Blocks& regions,
                         std::uint64_t most) {
  if (taken.is_phantom()) return taken;
  PoolVector<AnyStream> kept;
  for (int owner = 0; owner < exchange.size(); ++owner) {
    AnyStream region = slice(taken, regions.of(owner));
    const bool is_crowd = owner != exchange.rank() && region.nnz() > most;
    kept.push_back(is_crowd ? split_top_k(region, most).kept : std::move(region));
  }
  std::uint64_t total = 0;
  for (const AnyStream& region : kept) total += region.nnz();
  if (total == taken.nnz()) return taken;
  AnyStream rest = concatenate(kept, Op::sum(), nullptr, LayoutChoice::sparse);
  ledger.return_all_but(rest);
  return rest;
}

/// What ranks tell each other before the gather, in two numbers each.
constexpr std::uint64_t kOfferBytes = 2 * sizeof(std::int64_t);
struct Offers {
  Sizes sizes;
  std::uint64_t carried = 0;  ///< by the busiest port so far, in pairs
};

/// By this rank's port so far, in the busier direction, in pairs.
std::uint64_t carried_pairs(Exchange& exchange) {
  const Counts& counts = exchange.operation().counts();
  const std::uint64_t pair_bytes = index_bytes(exchange.dimension()) + size_of(exchange.type());
  return (std::max(counts.data_bytes_sent, counts.data_bytes_received) + pair_bytes - 1) / pair_bytes;
}

Task<Offers> share_offers(Exchange& exchange, std::uint64_t size, const Blocks& regions) {
  constexpr std::uint64_t kMostCarried = std::uint64_t{1} << 56;
  PoolVector<std::int64_t> mine = {static_cast<std::int64_t>(size), static_cast<std::int64_t>(carried_pairs(exchange))};
  const auto numbers = co_await share_numbers(exchange.operation(), std::move(mine), kOfferStep);
  Offers offers;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    const auto& theirs = numbers[static_cast<std::size_t>(rank)];
    offers.sizes.push_back(count_of(theirs[0], rank, regions.of(rank).size(), "the number of sums in a region"));
    offers.carried = std::max(offers.carried, count_of(theirs[1], rank, kMostCarried, "what a port has carried"));
  }
  co_return offers;
}

/// How much of the offers travels, and how.
struct Course {
  Sizes sizes;
  bool is_balanced = false;
};

class Budget {
 public:
  Budget(std::uint64_t k, int ranks, std::uint64_t pair_bytes) : k_(k), ranks_(static_cast<std::uint64_t>(ranks)) {
    offer_pairs_ = (kOfferBytes * (ranks_ - 1) + pair_bytes - 1) / pair_bytes;
  }

  /// Of a search: the largest sums of each owner, as many as there is room for.
  Course of_search(const Offers& offers) const {
    const std::uint64_t least = at_least(offers) / ranks_ + 1;
    const auto fits = [&](std::uint64_t most) {
      return patterns::load_as_they_are(patterns::capped_at(offers.sizes, most)).busiest() <= room(offers);
    };
    const std::uint64_t most = std::ranges::max(offers.sizes);
    return {patterns::capped_at(offers.sizes, patterns::largest_that_fits(least, most, fits)), false};
  }
  /// Of what passes the threshold: no more than k, from each owner in proportion.
  Course of_passing(const Offers& offers) const {
    const auto fits = [&](std::uint64_t total) { return load_of(course_of(offers, total)) <= room(offers); };
    const std::uint64_t most = std::min(k_, patterns::total_of(offers.sizes));
    return course_of(offers, patterns::largest_that_fits(std::min(at_least(offers), most), most, fits));
  }
  /// Whether some port has carried 3/2 of its part of the split.
  bool is_uneven(const Offers& offers) const { return 2 * offers.carried > 3 * (part() + 1); }

 private:
  std::uint64_t part() const { return k_ * (ranks_ - 1) / ranks_; }
  std::uint64_t room(const Offers& offers) const {
    const std::uint64_t all = kMostParts * k_ * (ranks_ - 1) / ranks_, used = offers.carried + offer_pairs_;
    return all > used ? all - used : 0;
  }
  // However little room is left: else a call with small k would deliver nothing.
  std::uint64_t at_least(const Offers& offers) const {
    return (std::min(k_, patterns::total_of(offers.sizes)) + 7) / 8;
  }
  Course course_of(const Offers& offers, std::uint64_t total) const {
    Course course{patterns::scaled_to(offers.sizes, total), false};
    if (total < ranks_) return course;  // there is no piece for everyone
    const bool is_unbalanced = std::ranges::max(course.sizes) * ranks_ > kUnbalanced * total;
    course.is_balanced = is_unbalanced || patterns::load_as_they_are(course.sizes).busiest() > room(offers);
    return course;
  }
  static std::uint64_t load_of(const Course& course) {
    return (course.is_balanced ? patterns::load_balanced(course.sizes) : patterns::load_as_they_are(course.sizes))
        .busiest();
  }

  std::uint64_t k_;
  std::uint64_t ranks_;
  std::uint64_t offer_pairs_;  ///< what sharing the offers takes
};

/// The values from position `first` on, with the part of the range that they begin.
AnyStream piece_of(const AnyStream& stream, const Balance::Piece& piece) {
  const std::uint64_t end = piece.first + piece.count;
  return slice(stream, {piece.first == 0 ? stream.range().begin : stream.index_at(piece.first),
                        end == stream.nnz() ? stream.range().end : stream.index_at(end)});
}

Part open_piece(Exchange& exchange, Incoming message, std::uint64_t count) {
  const int from = message.from;
  Part part = exchange.open(std::move(message));
  if (part.stream.nnz() != count) reject_message(from, "a piece has another size than its owner announced");
  return part;
}

Task<Part> balance(Exchange& exchange, AnyStream mine, std::span<const std::uint64_t> sizes) {
  const Balance plan(sizes);
  Part own;
  for (const Balance::Piece& piece : plan.pieces_of(exchange.rank())) {
    Part part{piece_of(mine, piece), 0, {}};
    if (piece.to == exchange.rank()) {
      own = std::move(part);
    } else {
      exchange.send(piece.to, kBalanceStep, part);
    }
  }
  PoolVector<Part> adjacent;
  for (int owner = 0; owner < exchange.size(); ++owner) {
    for (const Balance::Piece& piece : plan.pieces_of(owner)) {
      if (piece.to != exchange.rank()) continue;
      if (owner == exchange.rank()) {
        adjacent.push_back(own);
        continue;
      }
      Incoming message = co_await exchange.operation().receive(owner, kBalanceStep);
      adjacent.push_back(open_piece(exchange, std::move(message), piece.count));
    }
  }
  co_return exchange.concatenate(adjacent, LayoutChoice::sparse);
}

/// Everyone's piece of the offers to everyone.
Task<AnyStream> gather(Exchange& exchange, const AnyStream& offered, const Course& course) {
  const std::uint64_t size = course.sizes[static_cast<std::size_t>(exchange.rank())];
  Part piece{size < offered.nnz() ? split_top_k(offered, size).kept : offered, 0, {}};
  if (course.is_balanced) piece = co_await balance(exchange, std::move(piece.stream), course.sizes);
  Part coded = exchange.with_coded_values(std::move(piece), kGatherStep);
  Part all = co_await gather_blocks(exchange, std::move(coded), kGatherStep, LayoutChoice::sparse);
  co_return std::move(all.stream);
}

/// The k largest of what was gathered in a search, and the threshold that they set.
AnyStream keep_largest(Exchange& exchange, const AnyStream& all, std::uint64_t k, OktopkState& memory) {
  exchange.operation().charge({.sparse_items = all.nnz()});
  AnyStream kept = split_top_k(all, k).kept;
  memory.global_threshold = kept.nnz() == 0 || kept.is_phantom() ? 0 : kth_magnitude(kept, kept.nnz());
  return kept;
}

/// What passes the global threshold. Of a phantom, as much as it was found for.
AnyStream passing(const AnyStream& sum, int ranks, std::uint64_t k, const OktopkState& memory) {
  if (sum.is_phantom())
    return split_top_k(sum, (k + static_cast<unsigned>(ranks) - 1) / static_cast<unsigned>(ranks)).kept;
  return split_at_threshold(sum, memory.global_threshold).kept;
}

bool has_aged(std::uint64_t passed, std::uint64_t k) { return passed > kMostPass * k || passed * kFewestPass < k; }

/// What a call does beside delivering.
struct Plan {
  bool searches = false;  ///< for thresholds
  bool finds_cuts = false;
};

Plan plan_of(const OktopkState& memory, const CallOptions& options, int ranks) {
  const bool is_first = memory.cuts.empty();
  return {is_first || memory.threshold_age >= options.threshold_period || ranks == 1,
          is_first || memory.region_age >= options.region_period};
}

/// Takes what passes the local threshold, which is this rank's own: it is found anew where it has aged.
AnyStream take(Ledger& ledger, const Accumulator& accumulator, const Plan& plan, OktopkState& memory) {
  const Range all{0, accumulator.dimension()};
  TakenAbove taken;
  if (plan.searches || accumulator.is_phantom()) {
    taken.stream = ledger.take_top_k(all, memory.k);
  } else {
    taken = ledger.take_above(all, memory.local_threshold, memory.k);
  }
  const bool is_found = taken.stream.nnz() > 0 && !taken.stream.is_phantom();
  if (is_found && (plan.searches || has_aged(taken.passed, memory.k))) {
    memory.local_threshold = kth_magnitude(taken.stream, taken.stream.nnz());
  }
  return std::move(taken.stream);
}

/// What earlier calls left, where it is of use to this one.
OktopkState memory_for(AlgorithmState* state, std::uint64_t k, std::uint64_t dimension, int ranks) {
  // Taken from the caller: a call that fails leaves nothing that ranks could disagree on.
  OktopkState memory;
  if (state != nullptr) memory = std::exchange(state->oktopk, {});
  const bool fits =
      memory.k == k && memory.cuts.size() == static_cast<std::size_t>(ranks) + 1 && memory.cuts.back() == dimension;
  if (!fits) memory = {};
  memory.k = k;
  return memory;
}

/// What the next call shall do, from what all ranks know of this one.
void grow_older(OktopkState& memory, const CallOptions& options, const Plan& plan, const Budget& budget,
                const Offers& offers) {
  memory.threshold_age = plan.searches ? 1 : memory.threshold_age + 1;
  memory.region_age = plan.finds_cuts ? 1 : memory.region_age + 1;
  const bool is_stale = !plan.searches && has_aged(patterns::total_of(offers.sizes), options.k);
  const bool is_uneven = !plan.finds_cuts && budget.is_uneven(offers) && memory.region_age > kLeastRegionAge;
  if (is_stale) memory.threshold_age = options.threshold_period;
  if (is_uneven) memory.region_age = options.region_period;
}

}  // namespace

Task<Outcome> oktopk(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState* state) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  OktopkState memory = memory_for(state, options.k, exchange.dimension(), exchange.size());
  const Plan plan = plan_of(memory, options, exchange.size());

  AnyStream taken = take(ledger, payload.accumulator, plan, memory);
  if (plan.finds_cuts) memory.cuts = co_await agree_on_cuts(exchange, taken);
  const Blocks regions{exchange.dimension(), exchange.size(), memory.cuts};
  const auto ranks = static_cast<std::uint64_t>(exchange.size());
  taken = without_crowds(exchange, ledger, std::move(taken), regions, (kMostToOwner * options.k + ranks - 1) / ranks);
  Part mine{std::move(taken), 0, {}};
  Buffer anywhere;
  const Part sum = co_await split_and_reduce(exchange, std::move(mine), kSplitStep, LayoutChoice::sparse,
                                             std::move(anywhere), memory.cuts);

  const AnyStream offered = plan.searches ? sum.stream : passing(sum.stream, exchange.size(), options.k, memory);
  const Offers offers = co_await share_offers(exchange, offered.nnz(), regions);
  const Budget budget(options.k, exchange.size(), index_bytes(exchange.dimension()) + size_of(exchange.type()));
  const Course course = plan.searches ? budget.of_search(offers) : budget.of_passing(offers);
  Part result;
  result.stream = co_await gather(exchange, offered, course);
  if (plan.searches) result.stream = keep_largest(exchange, result.stream, options.k, memory);

  grow_older(memory, options, plan, budget, offers);
  ledger.settle(result.stream);
  if (state != nullptr) state->oktopk = std::move(memory);
  co_return exchange.outcome(std::move(result), ledger);
}

// Between two searches: what the paper bills, of which most is the split, the gather and the sizes.
double oktopk_cost(const CostInput& input) {
  const double block = input.dimension / input.ranks;
  const double block_bytes = input.coded_stream_bytes(input.nnz / input.ranks, block);
  return select_seconds(input, input.dimension) + split_seconds(input, block_bytes) +
         merge_seconds(input, input.ranks, input.nnz / input.ranks) + gather_seconds(input, kOfferBytes) +
         gather_seconds(input, block_bytes) + join_seconds(input, input.nnz) +
         2 * input.coding_seconds(input.nnz, input.dimension);
}

}  // namespace tulle::algorithms
