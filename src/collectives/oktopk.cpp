// oktopk: sparse allreduce of accumulators in owners' regions that adapt to the data. Li and Hoefler 2022.
//
// How it works. *Select*: a rank takes the values above its *local threshold*; it finds that exactly every τ' calls and
// uses it again in between. *Split*: [0, N) is cut into P *regions*; every τ calls each rank proposes the cuts that
// would balance its own values, and the mean is taken. Every rank sends each owner the pairs of its region, beginning
// with its right-hand neighbour; the owner sums them. *Filter*: the owner keeps what is above the *global threshold*,
// that of the k largest sums, which every τ' calls is found exactly from all of them. *Gather*: the sizes of what is
// left are shared; where the largest is more than four times the mean the pieces are *balanced* first; then they travel
// to everyone. Everything that was taken and is not in the result comes back.
//
//   depth     1 + ⌈log2 P⌉ for the split and the gather, ⌈log2 P⌉ more for the sizes, 1 more where pieces are balanced
//   messages  P − 1 + 2·⌈log2 P⌉ per rank, and those of balancing
//   data      between k·(P−1)/P and 3·k·(P−1)/P pairs through each port between two searches for thresholds

#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/ledger.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/select/top_k.hpp"

namespace tulle::algorithms {
namespace {

constexpr Step kRegionStep = 0, kSplitStep = 64, kSizeStep = 65, kBalanceStep = 129, kGatherStep = 130;
constexpr std::uint64_t kUnbalanced = 4;
// A global threshold that lets more than 2·k or fewer than k/2 values pass has aged.
constexpr std::uint64_t kMostPass = 2, kFewestPass = 2;

/// Everyone's numbers, by rank. Integers travel as a dense stream of their own.
Task<PoolVector<PoolVector<std::int64_t>>> share_numbers(Operation& operation, PoolVector<std::int64_t> mine,
                                                         Step first_step) {
  const Stream<std::int64_t> stream = Stream<std::int64_t>::dense(mine);
  Exchange exchange(operation, stream, {});
  const PoolVector<Part> parts = co_await gather_parts(exchange, Exchange::contribution(stream), first_step);
  PoolVector<PoolVector<std::int64_t>> all;
  for (const Part& part : parts) {
    const std::span<const std::int64_t> numbers = part.stream.values_buffer().as<std::int64_t>();
    all.emplace_back(numbers.begin(), numbers.end());
  }
  co_return all;
}

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

void require_cuts(std::span<const std::int64_t> cuts, std::uint64_t dimension) {
  const bool are_cuts = std::ranges::is_sorted(cuts) &&
                        (cuts.empty() || (cuts.front() >= 0 && static_cast<std::uint64_t>(cuts.back()) <= dimension));
  if (!are_cuts) throw Error(ErrorKind::bad_message, "a rank proposes regions that do not follow one another");
}

Task<std::vector<std::uint64_t>> agree_on_cuts(Exchange& exchange, const AnyStream& taken) {
  const int ranks = exchange.size();
  PoolVector<std::int64_t> mine = balanced_cuts(taken, ranks);
  const auto proposals = co_await share_numbers(exchange.operation(), std::move(mine), kRegionStep);
  for (const auto& proposal : proposals) require_cuts(proposal, exchange.dimension());
  std::vector<std::uint64_t> cuts = {0};
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(ranks); ++i) {
    unsigned __int128 sum = 0;
    for (const auto& proposal : proposals) sum += static_cast<std::uint64_t>(proposal[i]);
    cuts.push_back(static_cast<std::uint64_t>(sum / static_cast<unsigned>(ranks)));
  }
  cuts.push_back(exchange.dimension());
  co_return cuts;
}

/// Who gets which values where all ranks' pieces, one after the other, are cut into P equal ones.
class Balance {
 public:
  struct Piece {
    int to;
    std::uint64_t first;  ///< position among the owner's values
    std::uint64_t count;
  };

  explicit Balance(std::span<const std::uint64_t> sizes) : sizes_(sizes) {
    for (const std::uint64_t size : sizes) total_ += size;
  }
  std::uint64_t total() const { return total_; }
  bool is_needed() const {
    const std::uint64_t ranks = sizes_.size();
    return total_ >= ranks && *std::ranges::max_element(sizes_) * ranks > kUnbalanced * total_;
  }
  /// An owner of nothing still hands on its region, to whoever gets what follows.
  PoolVector<Piece> pieces_of(int owner) const {
    const auto size = sizes_[static_cast<std::size_t>(owner)];
    std::uint64_t begin = 0;
    for (int rank = 0; rank < owner; ++rank) begin += sizes_[static_cast<std::size_t>(rank)];
    if (size == 0) return {{holder_of(begin), 0, 0}};
    PoolVector<Piece> pieces;
    for (std::uint64_t at = begin; at < begin + size;) {
      const int to = holder_of(at);
      const std::uint64_t end = std::min(begin + size, share(to).end);
      pieces.push_back({to, at - begin, end - at});
      at = end;
    }
    return pieces;
  }

 private:
  Range share(int rank) const { return block_of(total_, static_cast<int>(sizes_.size()), rank); }
  int holder_of(std::uint64_t at) const {
    int rank = static_cast<int>(sizes_.size()) - 1;
    while (share(rank).begin > at) --rank;
    return rank;
  }

  std::span<const std::uint64_t> sizes_;
  std::uint64_t total_ = 0;
};

/// The values from position `first` on, with the part of the range that they begin.
AnyStream piece_of(const AnyStream& stream, const Balance::Piece& piece) {
  const std::uint64_t end = piece.first + piece.count;
  return slice(stream, {piece.first == 0 ? stream.range().begin : stream.index_at(piece.first),
                        end == stream.nnz() ? stream.range().end : stream.index_at(end)});
}

Task<Part> balance(Exchange& exchange, AnyStream mine, const Balance& plan) {
  PoolVector<Part> parts(static_cast<std::size_t>(exchange.size()));
  const auto rank = static_cast<std::size_t>(exchange.rank());
  for (const Balance::Piece& piece : plan.pieces_of(exchange.rank())) {
    Part part{piece_of(mine, piece), 0, {}};
    if (piece.to == exchange.rank()) {
      parts[rank] = std::move(part);
    } else {
      exchange.send(piece.to, kBalanceStep, part);
    }
  }
  PoolVector<Part> adjacent;
  for (int owner = 0; owner < exchange.size(); ++owner) {
    for (const Balance::Piece& piece : plan.pieces_of(owner)) {
      if (piece.to != exchange.rank()) continue;
      if (owner == exchange.rank()) {
        adjacent.push_back(std::move(parts[rank]));
        continue;
      }
      Incoming message = co_await exchange.operation().receive(owner, kBalanceStep);
      adjacent.push_back(exchange.open(std::move(message)));
    }
  }
  co_return exchange.concatenate(adjacent, LayoutChoice::sparse);
}

Task<Part> gather(Exchange& exchange, Part mine) {
  Part coded = exchange.with_coded_values(std::move(mine), kGatherStep);
  co_return co_await gather_blocks(exchange, std::move(coded), kGatherStep, LayoutChoice::sparse);
}

/// The exact way: all sums to everyone, who all find the same k largest and the threshold that they set.
Task<AnyStream> filter_exactly(Exchange& exchange, Part sum, std::uint64_t k, OktopkState& memory) {
  Part all = co_await gather(exchange, std::move(sum));
  exchange.operation().charge({.sparse_items = all.stream.nnz()});
  SplitStream split = split_top_k(all.stream, k);
  const std::uint64_t kept = split.kept.nnz();
  memory.global_threshold = kept == 0 || split.kept.is_phantom() ? 0 : kth_magnitude(split.kept, kept);
  co_return std::move(split.kept);
}

Task<AnyStream> filter_by_threshold(Exchange& exchange, Part sum, std::uint64_t k, OktopkState& memory) {
  AnyStream mine = split_at_threshold(sum.stream, memory.global_threshold).kept;
  PoolVector<std::int64_t> my_size(1, static_cast<std::int64_t>(mine.nnz()));
  const auto numbers = co_await share_numbers(exchange.operation(), std::move(my_size), kSizeStep);
  PoolVector<std::uint64_t> sizes;
  for (const auto& number : numbers) sizes.push_back(static_cast<std::uint64_t>(number.front()));
  const Balance plan(sizes);
  if (plan.total() > kMostPass * k || plan.total() * kFewestPass < k) memory.calls = 0;  // search again
  Part piece{std::move(mine), 0, {}};
  if (plan.is_needed()) piece = co_await balance(exchange, std::move(piece.stream), plan);
  Part all = co_await gather(exchange, std::move(piece));
  co_return std::move(all.stream);
}

bool fits(const OktopkState& memory, std::uint64_t k, std::uint64_t dimension, int ranks) {
  return memory.k == k && memory.cuts.size() == static_cast<std::size_t>(ranks) + 1 && memory.cuts.back() == dimension;
}

}  // namespace

Task<Outcome> oktopk(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState* state) {
  Ledger ledger(operation, payload.accumulator, options.residual);
  Exchange exchange(operation, payload.accumulator, options, ledger);
  OktopkState memory;  // taken from the caller: a call that fails leaves nothing that ranks could disagree on
  if (state != nullptr) memory = std::exchange(state->oktopk, {});
  if (!fits(memory, options.k, exchange.dimension(), exchange.size())) memory = {};
  memory.k = options.k;
  const bool is_first = memory.cuts.empty();
  const bool finds_thresholds = is_first || memory.calls % options.threshold_period == 0 || operation.size() == 1;
  const bool finds_cuts = is_first || memory.calls % options.region_period == 0;
  memory.calls += 1;

  const Range all{0, exchange.dimension()};
  AnyStream taken = finds_thresholds || payload.accumulator.is_phantom()
                        ? ledger.take_top_k(all, options.k)
                        : ledger.take_above(all, memory.local_threshold, options.k);
  if (finds_thresholds && taken.nnz() > 0 && !taken.is_phantom()) {
    memory.local_threshold = kth_magnitude(taken, taken.nnz());
  }
  if (finds_cuts) memory.cuts = co_await agree_on_cuts(exchange, taken);
  Part mine{std::move(taken), 0, {}};
  Buffer anywhere;
  Part sum = co_await split_and_reduce(exchange, std::move(mine), kSplitStep, LayoutChoice::sparse, std::move(anywhere),
                                       memory.cuts);
  Part result;
  if (finds_thresholds) {
    result.stream = co_await filter_exactly(exchange, std::move(sum), options.k, memory);
  } else {
    result.stream = co_await filter_by_threshold(exchange, std::move(sum), options.k, memory);
  }
  ledger.settle(result.stream);
  if (state != nullptr) state->oktopk = std::move(memory);
  co_return exchange.outcome(std::move(result), ledger);
}

// Between two searches: what the paper bills, of which most is the split, the gather and the sizes.
double oktopk_cost(const CostInput& input) {
  const double block = input.dimension / input.ranks;
  const double block_bytes = input.coded_stream_bytes(input.nnz / input.ranks, block);
  return select_seconds(input, input.dimension) + split_seconds(input, block_bytes) +
         merge_seconds(input, input.ranks, input.nnz / input.ranks) + gather_seconds(input, sizeof(std::int64_t)) +
         gather_seconds(input, block_bytes) + join_seconds(input, input.nnz) +
         2 * input.coding_seconds(input.nnz, input.dimension);
}

}  // namespace tulle::algorithms
