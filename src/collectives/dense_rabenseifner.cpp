// dense_rabenseifner: dense allreduce by recursive halving, then allgather. Rabenseifner, ICCS 2004.
//
// How it works. A rank starts with the whole range. In each round of *halving* it exchanges one half of its range with
// a partner, keeps the other and reduces it; after log2 P rounds it holds the sum of one block. The blocks are then
// gathered in as many rounds. Where P is no power of two, extra ranks fold into a partner before and are told after.
//
//   depth     2·log2 P, and up to 2 more where P is no power of two
//   messages  2·log2 P per rank
//   data      2·(P−1)/P·N values through each port

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/patterns/fold.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle::algorithms {
namespace {

constexpr Step kFoldStep = 0, kResultStep = after_message(kFoldStep), kFirstRound = after_message(kResultStep),
               kGatherStep = after_rounds(kFirstRound);

// Halving over the core ranks: the blocks [first, first + count) are this rank's to reduce. The last is summed in its
// place in the result.
Task<Part> halve(Exchange& exchange, Part sum, const patterns::Fold& fold, const Buffer& result) {
  int first = 0;
  Step step = kFirstRound;
  for (int distance = fold.core_size() / 2; distance >= 1; distance /= 2, ++step) {
    const bool keeps_lower = (fold.core_rank() & distance) == 0;
    const auto half = [&](int start) {
      return Range{block_of(exchange.dimension(), fold.core_size(), start).begin,
                   block_of(exchange.dimension(), fold.core_size(), start + distance - 1).end};
    };
    const int kept = keeps_lower ? first : first + distance;
    const int given = keeps_lower ? first + distance : first;
    const int partner = fold.rank_of(fold.core_rank() ^ distance);
    exchange.send(partner, step, {slice(sum.stream, half(given)), 0});
    Incoming message = co_await exchange.operation().receive(partner, step);
    Part operands[] = {{slice(sum.stream, half(kept)), sum.contributed}, exchange.open(std::move(message))};
    if (!keeps_lower) std::swap(operands[0], operands[1]);
    sum = distance > 1
              ? exchange.reduce(std::move(operands[0]), std::move(operands[1]))
              : exchange.reduce_many(operands, LayoutChoice::dense, exchange.block_of_result(result, half(kept)));
    first = kept;
  }
  co_return sum;
}

Task<Part> halve_and_gather(Exchange& exchange, Part mine, const patterns::Fold& fold) {
  Buffer result = exchange.make_dense_result(kGatherStep, mine.stream.is_phantom());
  Part block = co_await halve(exchange, std::move(mine), fold, result);
  const auto rank_of = [](const void* context, int member) {
    return static_cast<const patterns::Fold*>(context)->rank_of(member);
  };
  const Members core{fold.core_rank(), fold.core_size(), rank_of, &fold};
  co_return co_await gather_blocks(exchange, std::move(block), kGatherStep, core, LayoutChoice::dense,
                                   std::move(result));
}

}  // namespace

Task<Outcome> dense_rabenseifner(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const patterns::Fold fold(exchange.rank(), exchange.size());
  Part mine = exchange.dense_contribution(payload.stream);
  if (exchange.size() == 1) co_return exchange.outcome(std::move(mine));

  if (fold.is_extra()) {
    exchange.send(fold.partner(), kFoldStep, mine);
    Incoming result = co_await operation.receive(fold.partner(), kResultStep);
    co_return exchange.outcome(exchange.open(std::move(result)));
  }
  if (fold.is_paired()) {
    Incoming folded = co_await operation.receive(fold.partner(), kFoldStep);
    mine = exchange.reduce(std::move(mine), exchange.open(std::move(folded)));
  }
  Part sum = co_await halve_and_gather(exchange, std::move(mine), fold);
  if (fold.is_paired()) exchange.send(fold.partner(), kResultStep, sum);
  co_return exchange.outcome(std::move(sum));
}

double dense_rabenseifner_cost(const CostInput& input) {
  const double bytes = input.dimension * input.value_bytes;
  double seconds = densify_seconds(input) + fold_seconds(input, bytes, bytes / 2, bytes);
  if (patterns::Fold::extra_depth(input.ranks) > 0) seconds += dense_pair_seconds(input, input.dimension);
  double extent = input.dimension / 2;
  for (int distance = 1; 2 * distance <= input.ranks; distance *= 2, extent /= 2) {
    seconds += 2 * exchange_seconds(input.profile, extent * input.value_bytes) + dense_pair_seconds(input, extent);
  }
  return seconds;
}

}  // namespace tulle::algorithms
