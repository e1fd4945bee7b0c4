// The middle of measurements and how far they spread, unmoved by a few wild ones.
//
// Threads: a pure function, for any thread.
#pragma once

#include <vector>

#pragma GCC visibility push(default)
namespace tulle {

struct Quartiles {
  double q1 = 0;
  double median = 0;
  double q3 = 0;

  friend bool operator==(const Quartiles&, const Quartiles&) = default;
};

/// Quartiles by linear interpolation. O(n log n). REQUIRES: at least one sample, and none is NaN.
Quartiles quartiles(std::vector<double> samples);

}  // namespace tulle
#pragma GCC visibility pop
