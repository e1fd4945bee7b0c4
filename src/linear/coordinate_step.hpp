// How far coordinate descent moves one weight: to the minimum of a parabola that lies above the loss, with L1 and L2
// exactly: w ← shrink(w − g/L, l1/L).
//
// Several ranks move coordinates of one row at the same time. If n of them do, each takes its own change of the row's
// margin n times: the loss is convex, so the loss at the sum of the changes is at most the mean of the losses that the
// ranks see. `overlap` is that n (scd.cpp).
#pragma once

#include <algorithm>
#include <cmath>

#include "linear/losses.hpp"
#include "tulle/linear/model.hpp"

namespace tulle::linear {

/// What a step needs to know of the rows that a column has.
struct ColumnSums {
  double slope = 0;      ///< Σ x·(first derivative)
  double bound = 0;      ///< Σ overlap·x²·(the most that the second derivative can be)
  double curvature = 0;  ///< Σ overlap·x²·(second derivative)
  double largest = 0;    ///< of overlap·|x|

  /// Of a row in which `overlap` ranks move coordinates.
  template <class L>
  void add(double value, double margin, double label, double row_weight, double overlap) {
    const double slope_of_row = L::slope(margin, label);
    slope += row_weight * value * slope_of_row;
    const double square = row_weight * overlap * value * value;
    bound += square * L::kCurvature;
    curvature += square * L::curvature(margin, slope_of_row);
    largest = std::max(largest, overlap * std::abs(value));
  }
};

/// The change of `weight` that `sums` over a data set of `rows` rows ask for.
inline double coordinate_step(const ColumnSums& sums, double rows, double weight, Penalty penalty) {
  const double gradient = sums.slope / rows + penalty.l2 * weight;
  const auto step_by = [&](double curvature) {
    const double both = curvature / rows + penalty.l2;
    return both == 0 ? 0 : soft_threshold(weight - gradient / both, penalty.l1 / both) - weight;
  };
  // A Newton step that moves margins by d is too long by d/ln(1 + d) at most (Sun and Tran-Dinh 2019), and one by the
  // bound is never too long.
  const double reach = std::abs(step_by(sums.curvature)) * sums.largest;
  const double trusted = reach > 0 ? sums.curvature * reach / std::log1p(reach) : sums.bound;
  return step_by(std::min(sums.bound, trusted));
}

}  // namespace tulle::linear
