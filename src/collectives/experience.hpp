// What earlier calls teach auto: how much longer or shorter than expected a row takes here.
#pragma once

#include "tulle/collectives/algorithm.hpp"

namespace tulle {

/// What is known of a row.
struct Verdict {
  double correction = 1;  ///< of its expected time: the median of the ratios remembered
  bool is_known = false;  ///< else it was not tried enough, and the correction is a guess
};
Verdict verdict_on(const Experience& experience, std::uint8_t number);

/// Whether a call may be spent on a row that is not known yet.
bool may_explore(const Experience& experience);
/// Whether a call may be spent on a known row that is not the best but nearly: it may have been misjudged.
bool may_look_again(const Experience& experience);
/// The row whose trial is under way, or 0.
std::uint8_t on_trial(const Experience& experience);

/// The row of the call before where nothing asks for another decision yet, else 0: deciding takes microseconds.
std::uint8_t settled_on(const Experience& experience);

/// Takes a call in: `last_call` is what the slowest rank took for the call before it, `row`, `expected_seconds` and
/// `nnz` are of the call itself. Equal on all ranks. Forgets what was found for other numbers of non-zeros.
void note_call(Experience& experience, Ticks last_call, std::uint8_t row, double expected_seconds, double nnz);

Ticks to_ticks(double seconds);

}  // namespace tulle
