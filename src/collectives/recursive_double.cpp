#include "collectives/recursive_double.hpp"

#include "collectives/patterns/fold.hpp"
#include "collectives/steps.hpp"

namespace tulle {
namespace {

constexpr Step kFoldStep = 0, kResultStep = after_message(kFoldStep), kFirstRound = after_message(kResultStep);

}  // namespace

Task<Part> recursive_double(Exchange& exchange, Part mine) {
  Operation& operation = exchange.operation();
  const patterns::Fold fold(exchange.rank(), exchange.size());

  if (fold.is_extra()) {
    exchange.send(fold.partner(), kFoldStep, mine);
    Incoming result = co_await operation.receive(fold.partner(), kResultStep);
    co_return exchange.open(std::move(result));
  }

  Part sum = std::move(mine);
  if (fold.is_paired()) {
    Incoming folded = co_await operation.receive(fold.partner(), kFoldStep);
    sum = exchange.reduce(std::move(sum), exchange.open(std::move(folded)));
  }

  Step step = kFirstRound;
  for (int distance = 1; distance < fold.core_size(); distance *= 2, ++step) {
    const int partner = fold.rank_of(fold.core_rank() ^ distance);
    exchange.send(partner, step, sum);
    Incoming message = co_await operation.receive(partner, step);
    Part theirs = exchange.open(std::move(message));
    // The lower group's sum is the left operand on both sides, so that both compute the same bits.
    const bool mine_is_lower = (fold.core_rank() & distance) == 0;
    sum = mine_is_lower ? exchange.reduce(std::move(sum), std::move(theirs))
                        : exchange.reduce(std::move(theirs), std::move(sum));
  }

  if (fold.is_paired()) exchange.send(fold.partner(), kResultStep, sum);
  co_return sum;
}

}  // namespace tulle
