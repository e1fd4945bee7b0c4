// auto: which row a call gets.
//
// Costs come from the cost functions and the communicator's profile, and are corrected by what earlier calls took. A
// row that is not known is tried where it promises to be clearly better than the best known one, and now and then where
// it promises not much less; a trial takes five calls and is made once. Everything that is looked at is equal on all
// ranks, so they agree without a message.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/experience.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// A promise smaller than this is not worth a trial.
constexpr double kWorthATrial = 0.9;
// Once in a while a row is tried that promises less: the costs may be wrong.
constexpr double kWorthALook = 1.5;
// A known row up to this much slower than the best is looked at again now and then.
constexpr double kNearlyAsGood = 1.3;

struct Candidate {
  const Algorithm* row = nullptr;
  double seconds = std::numeric_limits<double>::infinity();
};

/// The two cheapest of what it is shown.
struct Podium {
  Candidate first, second;

  void show(const Candidate& candidate) {
    if (first.row == nullptr || candidate.seconds < first.seconds) {
      second = std::exchange(first, candidate);
    } else if (second.row == nullptr || candidate.seconds < second.seconds) {
      second = candidate;
    }
  }
};

}  // namespace

bool can_serve(const Algorithm& algorithm, const RowNeeds& needs) {
  return algorithm.kind == needs.kind && algorithm.takes == needs.takes && algorithm.needs == Needs::messages &&
         (!needs.coded_values || algorithm.codes_values);
}

const Algorithm& choose(const RowNeeds& needs, const CostInput& input, const Experience& experience) {
  Podium known, unknown;
  Candidate trial;
  const std::uint8_t number_on_trial = on_trial(experience);
  for (const Algorithm& algorithm : registry()) {
    if (!can_serve(algorithm, needs)) continue;
    const std::uint8_t number = algorithm_number(algorithm);
    const Verdict verdict = verdict_on(experience, number);
    const Candidate candidate{&algorithm, algorithm.cost_seconds(input) * verdict.correction};
    (verdict.is_known ? known : unknown).show(candidate);
    if (number == number_on_trial) trial = candidate;
  }
  const Candidate &best = known.first, &promise = unknown.first;
  if (best.row == nullptr && promise.row == nullptr) {
    throw Error(ErrorKind::unsupported, fmt::format("no {} can send values coded like that", to_string(needs.kind)));
  }
  // What is known of the data may have changed since the trial began.
  if (trial.seconds <= kWorthALook * std::min(best.seconds, promise.seconds)) return *trial.row;
  if (best.row == nullptr) return *promise.row;
  const bool looks = may_look_again(experience);
  if (promise.seconds < kWorthATrial * best.seconds && may_explore(experience)) return *promise.row;
  if (promise.seconds < kWorthALook * best.seconds && looks) return *promise.row;
  if (known.second.seconds < kNearlyAsGood * best.seconds && looks) return *known.second.row;
  return *best.row;
}

}  // namespace tulle
