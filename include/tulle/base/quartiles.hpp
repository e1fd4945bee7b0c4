// The middle of measurements and how far they spread, unmoved by a few wild ones.
#pragma once

#include <vector>

namespace tulle {

struct Quartiles {
  double q1 = 0;
  double median = 0;
  double q3 = 0;

  friend bool operator==(const Quartiles&, const Quartiles&) = default;
};

/// By linear interpolation. REQUIRES: samples.
Quartiles quartiles(std::vector<double> samples);

}  // namespace tulle
