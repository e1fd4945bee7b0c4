// auto: which row a call gets.
//
// Costs come from the cost functions and the communicator's profile, and are corrected by what earlier calls took. The
// row that is thought the fastest runs, but for a few calls that go to the row that may yet turn out to be faster: the
// less is known of a row, the more may be hoped of it. Such calls have a budget, a small share of the time spent so
// far. Everything that is looked at is equal on all ranks, so they agree without a message.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "collectives/experience.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// A trial goes on unless it turns out to be a mistake by this much: what is known of the data may have changed. The
// first ends as soon as costs know better, because nothing else is known yet.
constexpr double kEndsATrial = 4, kEndsTheFirst = 1.1;

struct Candidate {
  const Algorithm* row = nullptr;
  double seconds = std::numeric_limits<double>::infinity();
  double hope = std::numeric_limits<double>::infinity();  ///< seconds that it may yet turn out to take
  bool is_known = false;
};

/// The two of which most may be hoped: one of them is not the best.
struct Hopefuls {
  Candidate first, second;

  void show(const Candidate& candidate) {
    if (candidate.hope < first.hope) {
      second = std::exchange(first, candidate);
    } else if (candidate.hope < second.hope) {
      second = candidate;
    }
  }
  const Candidate& besides(const Candidate& best) const { return first.row == best.row ? second : first; }
};

}  // namespace

bool can_serve(const Algorithm& algorithm, const RowNeeds& needs) {
  return algorithm.kind == needs.kind && algorithm.takes == needs.takes && algorithm.needs == Needs::messages &&
         (!needs.coded_values || algorithm.codes_values) && (!needs.input || algorithm.input == *needs.input);
}

const Algorithm& choose(const RowNeeds& needs, const CostInput& input, const Experience& experience) {
  Candidate best, trial;
  Hopefuls hopefuls;
  const std::uint8_t number_on_trial = on_trial(experience);
  for (const Algorithm& algorithm : registry()) {
    if (!can_serve(algorithm, needs)) continue;
    const std::uint8_t number = algorithm_number(algorithm);
    const Verdict verdict = verdict_on(experience, number);
    const double seconds = algorithm.cost_seconds(input) * verdict.correction;
    const Candidate candidate{&algorithm, seconds, seconds * verdict.hope, verdict.is_known};
    if (number == number_on_trial) trial = candidate;
    hopefuls.show(candidate);
    // What is known is better than what is promised, however much.
    const bool is_better = candidate.is_known == best.is_known ? seconds < best.seconds : candidate.is_known;
    if (is_better || best.row == nullptr) best = candidate;
  }
  if (best.row == nullptr) {
    throw Error(ErrorKind::unsupported, fmt::format("no {} can send values coded like that", to_string(needs.kind)));
  }
  if (std::isinf(best.seconds)) {
    throw Error(ErrorKind::unsupported,
                fmt::format("no {} of 2^32 values or more can send values coded like that", to_string(needs.kind)));
  }
  if (trial.row != nullptr && trial.seconds <= (best.is_known ? kEndsATrial : kEndsTheFirst) * best.seconds)
    return *trial.row;
  const Candidate& hopeful = hopefuls.besides(best);
  if (!best.is_known || hopeful.hope >= best.seconds) return *best.row;
  const double price = (hopeful.is_known ? 1 : kTrialCalls) * (hopeful.seconds - best.seconds);
  return may_spend(experience, price, best.seconds) ? *hopeful.row : *best.row;
}

}  // namespace tulle
