// How far coordinate descent moves one weight: to the minimum of a parabola that lies above the loss, with L1 and L2
// exactly: w ← shrink(w − g/L, l1/L).
#pragma once

#include <algorithm>
#include <cmath>

#include "linear/losses.hpp"
#include "tulle/linear/model.hpp"

namespace tulle::linear {

/// What a step needs to know of the rows that a column has.
struct ColumnSums {
  double slope = 0;      ///< Σ x·(first derivative)
  double bound = 0;      ///< Σ x²·(the most that the second derivative can be)
  double curvature = 0;  ///< Σ x²·(second derivative)
  double largest = 0;    ///< of |x|

  template <class L>
  void add(double value, double margin, double label, double row_weight) {
    const double slope_of_row = L::slope(margin, label);
    slope += row_weight * value * slope_of_row;
    bound += row_weight * value * value * L::kCurvature;
    curvature += row_weight * value * value * L::curvature(margin, slope_of_row);
    largest = std::max(largest, std::abs(value));
  }
};

/// The change of `weight` that `sums` over a data set of `rows` rows ask for; `damping` multiplies L.
inline double coordinate_step(const ColumnSums& sums, double rows, double weight, Penalty penalty, double damping) {
  const double gradient = sums.slope / rows + penalty.l2 * weight;
  const auto step_by = [&](double curvature) {
    const double both = damping * (curvature / rows + penalty.l2);
    return both == 0 ? 0 : soft_threshold(weight - gradient / both, penalty.l1 / both) - weight;
  };
  // A Newton step that moves margins by d is too long by d/ln(1 + d) at most (Sun and Tran-Dinh 2019), and one by the
  // bound is never too long.
  const double reach = std::abs(step_by(sums.curvature)) * sums.largest;
  const double trusted = reach > 0 ? sums.curvature * reach / std::log1p(reach) : sums.bound;
  return step_by(std::min(sums.bound, trusted));
}

}  // namespace tulle::linear
