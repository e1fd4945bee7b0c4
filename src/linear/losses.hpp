// The losses as functions of one margin, inlined into the loops over rows.
#pragma once

#include <algorithm>
#include <cmath>

#include "tulle/linear/model.hpp"

namespace tulle::linear {

template <Loss L>
struct LossOf;

template <>
struct LossOf<Loss::logistic> {
  static constexpr double kCurvature = 0.25;  ///< bounds the second derivative
  static double value(double margin, double label) {
    const double signed_margin = label * margin;
    return std::max(0.0, -signed_margin) + std::log1p(std::exp(-std::abs(signed_margin)));
  }
  static double slope(double margin, double label) { return -label / (1 + std::exp(label * margin)); }
  /// The second derivative where the third is not larger, so that it tells how far a parabola can be trusted.
  static double curvature(double, double slope) { return std::abs(slope) * (1 - std::abs(slope)); }
};

template <>
struct LossOf<Loss::hinge> {
  static constexpr double kCurvature = 0;  ///< none: coordinate descent cannot use it
  static double value(double margin, double label) { return std::max(0.0, 1 - label * margin); }
  static double slope(double margin, double label) { return label * margin < 1 ? -label : 0; }
  static double curvature(double, double) { return kCurvature; }
};

template <>
struct LossOf<Loss::squared_hinge> {
  static constexpr double kCurvature = 2;
  static double value(double margin, double label) { return std::pow(std::max(0.0, 1 - label * margin), 2); }
  static double slope(double margin, double label) { return -2 * label * std::max(0.0, 1 - label * margin); }
  static double curvature(double, double) { return kCurvature; }
};

template <>
struct LossOf<Loss::squares> {
  static constexpr double kCurvature = 1;
  static double value(double margin, double label) { return (margin - label) * (margin - label) / 2; }
  static double slope(double margin, double label) { return margin - label; }
  static double curvature(double, double) { return kCurvature; }
};

/// Calls `function.template operator()<LossOf<...>>()`.
template <class Function>
decltype(auto) visit_loss(Loss loss, Function&& function) {
  switch (loss) {
    case Loss::logistic: return function.template operator()<LossOf<Loss::logistic>>();
    case Loss::hinge: return function.template operator()<LossOf<Loss::hinge>>();
    case Loss::squared_hinge: return function.template operator()<LossOf<Loss::squared_hinge>>();
    case Loss::squares: return function.template operator()<LossOf<Loss::squares>>();
  }
  __builtin_unreachable();
}

/// x moved towards zero by `amount`, and no further.
template <class T>
T soft_threshold(T x, T amount) {
  const T magnitude = std::abs(x) - amount;
  return magnitude > 0 ? std::copysign(magnitude, x) : T{0};
}

/// Σ weights[index]·value over a row, in double.
inline double dot(RowView row, const float* weights) {
  double sum = 0;
  if (row.values.empty()) {
    for (const std::uint32_t index : row.indices) sum += weights[index];
  } else {
    for (std::size_t i = 0; i < row.indices.size(); ++i)
      sum += static_cast<double>(weights[row.indices[i]]) * row.values[i];
  }
  return sum;
}

}  // namespace tulle::linear
