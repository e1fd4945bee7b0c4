// Both solvers with default options against the minimum of what they minimize: every loss and penalty, one to eight
// ranks, rows in random order and sorted, features and targets in any units.
#include <gtest/gtest.h>

#include <numeric>

#include "linear/losses.hpp"
#include "linear/ranks.hpp"

namespace tulle::linear {
namespace {

using testing::sample_rows;

struct Problem {
  std::string name;
  Loss loss;
  Penalty penalty;
  int classes = 2;
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {{"logistic", Loss::logistic, {.l2 = 1e-2}},
                                           {"logistic with L1", Loss::logistic, {.l1 = 1e-2}},
                                           {"hinge", Loss::hinge, {.l2 = 1e-2}},
                                           {"squared hinge", Loss::squared_hinge, {.l2 = 1e-2}},
                                           {"least squares", Loss::squares, {.l2 = 1e-2}, 0},
                                           {"lasso", Loss::squares, {.l1 = 1e-2}, 0},
                                           {"elastic net", Loss::squares, {.l1 = 1e-2, .l2 = 1e-2}, 0}};
  return all;
}

enum class Order { random, sorted, unscaled };

// Sorted: by label. Unscaled: values of a feature are up to 1000 times as large or as small, and targets lie around
// 150.
Rows rows_of(const Problem& problem, Order order) {
  const Rows rows = sample_rows({.rows = 2000, .features = 25, .density = 0.4, .classes = problem.classes});
  std::vector<std::size_t> numbers(rows.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  if (order == Order::sorted) {
    std::ranges::stable_sort(numbers, [&](std::size_t a, std::size_t b) { return rows.label(a) < rows.label(b); });
  }
  Rows result;
  for (const std::size_t number : numbers) {
    const RowView row = rows[number];
    const bool is_unscaled = order == Order::unscaled;
    for (std::size_t i = 0; i < row.indices.size(); ++i) {
      const double unit = is_unscaled ? std::pow(10, static_cast<int>(row.indices[i] % 7) - 3) : 1;
      result.add(row.indices[i], static_cast<float>(row.value(i) * unit));
    }
    const bool is_moved = is_unscaled && problem.classes == 0;
    result.end_row(is_moved ? 150 + 50 * rows.label(number) : rows.label(number));
  }
  return result;
}

// The minimum by coordinate descent in double, until nothing moves: exact steps of squares, and for the others steps by
// their bound. The hinge's corner is rounded by a parabola that takes at most kCorner/2 off.
constexpr double kCorner = 1e-3;

struct Rounded {
  static double value(double margin, double label) {
    const double lack = 1 - label * margin;
    return lack >= kCorner ? lack - kCorner / 2 : std::max(0.0, lack) * std::max(0.0, lack) / (2 * kCorner);
  }
  static double slope(double margin, double label) {
    return -label * std::clamp((1 - label * margin) / kCorner, 0.0, 1.0);
  }
  static constexpr double kCurvature = 1 / kCorner;
};

template <class L>
double minimum_of(const Rows& rows, Penalty penalty, std::size_t features) {
  const auto count = static_cast<double>(rows.size());
  std::vector<std::vector<std::pair<std::size_t, double>>> columns(features + 1);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t i = 0; i < rows[row].indices.size(); ++i) {
      columns[rows[row].indices[i]].emplace_back(row, rows[row].value(i));
    }
    columns[features].emplace_back(row, 1);
  }
  std::vector<double> weights(features + 1), margins(rows.size());
  const auto objective = [&] {
    double sum = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) sum += L::value(margins[row], rows.label(row)) / count;
    for (std::size_t i = 0; i < features; ++i) {
      sum += penalty.l1 * std::abs(weights[i]) + penalty.l2 / 2 * weights[i] * weights[i];
    }
    return sum;
  };
  double before = objective();
  for (int sweep = 1; sweep < 20000; ++sweep) {
    for (std::size_t i = 0; i <= features; ++i) {
      const double l1 = i < features ? penalty.l1 : 0, l2 = i < features ? penalty.l2 : 0;
      double slope = l2 * weights[i], curvature = l2;
      for (const auto& [row, value] : columns[i]) {
        slope += value * L::slope(margins[row], rows.label(row)) / count;
        curvature += value * value * L::kCurvature / count;
      }
      if (curvature == 0) continue;
      const double moved = soft_threshold(weights[i] - slope / curvature, l1 / curvature) - weights[i];
      weights[i] += moved;
      for (const auto& [row, value] : columns[i]) margins[row] += moved * value;
    }
    if (sweep % 50 != 0) continue;
    const double now = objective();
    if (now > before * (1 - 1e-7)) return now;
    before = now;
  }
  return before;
}

double minimum(const Rows& rows, const Problem& problem) {
  if (problem.loss == Loss::hinge) return minimum_of<Rounded>(rows, problem.penalty, 25);
  return visit_loss(problem.loss, [&]<class L>() { return minimum_of<L>(rows, problem.penalty, 25); });
}

// Coordinate descent takes the second derivative of the squared hinge for 2 in all rows, also where it is 0, and so
// needs more than the default epochs.
double tolerance_of(const Problem& problem, Solver solver) {
  return solver == Solver::scd && problem.loss == Loss::squared_hinge ? 1e-2 : 1e-3;
}

void expect_near_the_minimum(Solver solver, Order order) {
  for (const Problem& problem : problems()) {
    if (solver == Solver::scd && problem.loss == Loss::hinge) continue;  // refused
    const Rows rows = rows_of(problem, order);
    const double least = minimum(rows, problem);
    double alone = 0;
    for (const std::size_t ranks : {1, 2, 4, 8}) {
      const auto parts = solver == Solver::scd ? std::vector<Rows>(ranks, rows) : testing::cut_rows(rows, ranks);
      const TrainOptions options{.solver = solver, .loss = problem.loss, .penalty = problem.penalty};
      const TrainResult result = testing::train_in_simulation(parts, options)[0];
      const double reached = testing::objective(result.model, rows, problem.penalty);
      if (ranks == 1) alone = reached;
      EXPECT_NEAR(result.objective.value(), reached, 1e-4 * reached) << problem.name;
      EXPECT_LT(reached - least, tolerance_of(problem, solver) * std::max(1.0, least))
          << problem.name << " on " << ranks << ": " << reached << " for " << least;
      EXPECT_GT(reached - least, -kCorner) << problem.name << ": the minimum is none";
      EXPECT_LT(reached, 1.05 * alone) << problem.name << " on " << ranks;
    }
  }
}

TEST(Optimum, SgdComesNear) { expect_near_the_minimum(Solver::sgd, Order::random); }
TEST(Optimum, SgdComesNearWhereRowsAreSorted) { expect_near_the_minimum(Solver::sgd, Order::sorted); }
TEST(Optimum, SgdComesNearInAnyUnits) { expect_near_the_minimum(Solver::sgd, Order::unscaled); }
TEST(Optimum, ScdComesNear) { expect_near_the_minimum(Solver::scd, Order::random); }
TEST(Optimum, ScdComesNearWhereRowsAreSorted) { expect_near_the_minimum(Solver::scd, Order::sorted); }
TEST(Optimum, ScdComesNearInAnyUnits) { expect_near_the_minimum(Solver::scd, Order::unscaled); }

}  // namespace
}  // namespace tulle::linear
