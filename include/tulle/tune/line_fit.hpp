// α and β from times of messages of several sizes.
//
// Threads: a pure function, for any thread.
#pragma once

#include <span>

#pragma GCC visibility push(default)
namespace tulle {

struct TransferTime {
  double bytes = 0;
  double seconds = 0;
};

/// seconds ≈ alpha_seconds + beta_seconds_per_byte · bytes.
struct LineFit {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
};

/// The line, neither constant negative, with the least sum of |relative error|. Relative, because times span several
/// decades and a cost must be as right for a small message as for a large one; absolute values, not squares, because
/// the scheduler makes some times many times too long, and such outliers must not turn the line. (Theil-Sen, the median
/// of all slopes, is as robust, but on sizes that double most slopes are between small messages, where they are noise.)
/// The best line goes through two of the points, or through one where a constant is 0, so that trying all is exact:
/// O(n³). REQUIRES: at least one time, all of them above 0.
LineFit fit_line(std::span<const TransferTime> times);

}  // namespace tulle
#pragma GCC visibility pop
