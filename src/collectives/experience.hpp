// What earlier calls teach auto: how much longer or shorter than expected a row takes here.
#pragma once

#include "tulle/collectives/registry.hpp"

namespace tulle {

/// What is known of a row.
struct Verdict {
  double correction = 1;  ///< of its expected time: the median of the ratios remembered
  double hope = 1;        ///< the share of the corrected time that it may yet turn out to take
  bool is_known = false;  ///< else it was not tried enough, and the correction is a guess
};
Verdict verdict_on(const Experience& experience, std::uint8_t number);

/// A row that is not known is called so many times in a row: the first pays for connections and memory.
inline constexpr int kTrialCalls = 2;
/// Whether `seconds` more than the best row takes, which needs `best_seconds` a call, may be spent to learn something.
bool may_spend(const Experience& experience, double seconds, double best_seconds);
/// The row whose trial is under way, or 0.
std::uint8_t on_trial(const Experience& experience);

/// The row of the call before where nothing asks for another decision yet, else 0: deciding takes microseconds.
std::uint8_t settled_on(const Experience& experience);

/// A call as auto remembers it. Equal on all ranks.
struct CallNote {
  Ticks last_call = 0;  ///< what the slowest rank took for the call before this one
  std::uint8_t row = 0;
  double expected_seconds = 0;
  double nnz = 0;         ///< of one rank
  bool is_chosen = true;  ///< else the caller asked for the row
};

/// Takes a call in. Of what was found for other numbers of non-zeros little is kept: one ratio a row, and none where
/// they differ by much.
void note_call(Experience& experience, const CallNote& call);

/// What a call of the fastest row takes, as far as is known; else what the last was thought to take, or 0.
double typical_seconds(const Experience& experience);

Ticks to_ticks(double seconds);

}  // namespace tulle
