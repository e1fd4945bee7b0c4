#include <gtest/gtest.h>

#include "base/error_of.hpp"
#include "base/temporary_directory.hpp"
#include "linear/columns.hpp"
#include "linear/ranks.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

using testing::sample_rows;
using testing::train_in_simulation;

// Coordinate descent: every rank has all of the rows.
std::vector<TrainResult> descend(const Rows& rows, std::size_t ranks, TrainOptions options) {
  options.solver = Solver::scd;
  return train_in_simulation(std::vector<Rows>(ranks, rows), options);
}

TEST(Columns, AreTheTransposeOfTheRows) {
  const Rows rows = sample_rows({.rows = 50});
  Dataset data(rows);
  const Columns columns(data);
  std::size_t seen = 0;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    EXPECT_EQ(columns.column_of(columns.feature(column)), column);
    for (std::size_t i = 0; i < columns[column].rows.size(); ++i, ++seen) {
      const RowView row = rows[columns[column].rows[i]];
      const auto place = std::ranges::lower_bound(row.indices, columns.feature(column)) - row.indices.begin();
      ASSERT_EQ(row.indices[static_cast<std::size_t>(place)], columns.feature(column));
      EXPECT_EQ(row.value(static_cast<std::size_t>(place)), columns[column].value(i));
    }
  }
  EXPECT_EQ(seen, rows.nonzeros());
}

TEST(Scd, FindsTheOptimumThatSgdFinds) {
  for (const Loss loss : {Loss::logistic, Loss::squared_hinge}) {
    const Rows rows = sample_rows({.rows = 300});
    const Penalty penalty{.l1 = 1e-3, .l2 = 1e-2};
    const LinearModel by_sgd = testing::train_alone(rows, {.loss = loss,
                                                           .penalty = penalty,
                                                           .epochs = 2000,
                                                           .batch_rows = 300,
                                                           .rate = 0.5,
                                                           .schedule = Schedule::constant});
    const double expected = testing::objective(by_sgd, rows, penalty);
    for (const std::size_t ranks : {1, 3, 4}) {
      const TrainResult result =
          descend(rows, ranks, {.loss = loss, .penalty = penalty, .epochs = 200, .coordinates = 4})[0];
      EXPECT_NEAR(testing::objective(result.model, rows, penalty), expected, 1e-4) << to_string(loss) << " " << ranks;
      EXPECT_NEAR(result.epochs.back().objective, testing::objective(result.model, rows, penalty), 1e-5);
      EXPECT_LT(testing::largest_difference(result.model, by_sgd), 0.02);
    }
  }
}

TEST(Scd, FallsInEveryEpochHoweverManyRanksMoveAtOnce) {
  const Rows rows =
      sample_rows({.rows = 200, .features = 40, .density = 0.8, .classes = 0});  // everyone meets everyone
  for (const std::size_t ranks : {2, 5, 8}) {
    const auto epochs = descend(rows, ranks, {.loss = Loss::squares, .epochs = 10, .coordinates = 5})[0].epochs;
    for (std::size_t e = 1; e < epochs.size(); ++e) EXPECT_LT(epochs[e].objective, epochs[e - 1].objective + 1e-6);
  }
}

TEST(Scd, OvershootsWithoutDampingWhereRowsAreFull) {
  Rows rows;  // eight equal columns: eight ranks that each go all the way overshoot eight times
  for (int row = 0; row < 20; ++row) {
    for (std::uint32_t i = 0; i < 8; ++i) rows.add(i, 1.0f);
    rows.end_row(static_cast<float>(row % 3));
  }
  const TrainOptions options{.loss = Loss::squares, .intercept = false, .epochs = 5, .coordinates = 1};
  TrainOptions undamped = options;
  undamped.damping = 1;
  EXPECT_GT(descend(rows, 8, undamped)[0].epochs.back().objective,
            descend(rows, 8, options)[0].epochs.back().objective);
}

// Also where each rank takes its whole slice in an iteration, and full rows have coordinates of every rank.
TEST(Scd, FallsInEveryEpochOfEveryLossWithAnyCoordinates) {
  for (const auto& [loss, penalty] :
       {std::pair(Loss::logistic, Penalty{.l2 = 1e-3}), std::pair(Loss::squares, Penalty{.l2 = 1e-3}),
        std::pair(Loss::squares, Penalty{.l1 = 1e-2}), std::pair(Loss::squared_hinge, Penalty{.l2 = 1e-3})}) {
    const Rows signed_rows =
        sample_rows({.rows = 500, .features = 40, .density = 0.8, .classes = loss == Loss::squares ? 0 : 2});
    Rows rows;  // all columns point the same way, so that ranks overshoot if they do not take care
    for (std::size_t row = 0; row < signed_rows.size(); ++row) {
      const RowView view = signed_rows[row];
      for (std::size_t i = 0; i < view.indices.size(); ++i) rows.add(view.indices[i], std::abs(view.value(i)));
      rows.end_row(signed_rows.label(row));
    }
    for (const std::uint32_t coordinates : {0u, 2u, 100u}) {
      for (const std::size_t ranks : {2, 4, 8}) {
        const auto epochs =
            descend(rows, ranks, {.loss = loss, .penalty = penalty, .coordinates = coordinates})[0].epochs;
        for (std::size_t e = 1; e < epochs.size(); ++e) {
          EXPECT_LT(epochs[e].objective, epochs[e - 1].objective * (1 + 1e-6)) << to_string(loss) << " on " << ranks;
        }
      }
    }
  }
}

TEST(Scd, RefusesRanksWithDifferentRows) {
  std::vector<Rows> parts(3, sample_rows({}));
  parts[1] = sample_rows({.seed = 2});
  const std::string error =
      testing::error_of([&] { train_in_simulation(parts, {.solver = Solver::scd, .epochs = 1}); });
  EXPECT_NE(error.find("data is 200 rows of 30 features"), std::string::npos) << error;
  EXPECT_NE(error.find("on rank 1"), std::string::npos) << error;
}

TEST(Scd, GivesTheSameModelOnEveryRank) {
  const auto results = descend(sample_rows({.classes = 3}), 4, {.epochs = 5, .coordinates = 7});
  for (const TrainResult& result : results) {
    EXPECT_NE(result.model.intercepts[2], 0);  // moved by a rank in the middle
    EXPECT_EQ(result.model.weights, results[0].model.weights);
    EXPECT_EQ(result.model.intercepts, results[0].model.intercepts);
    EXPECT_EQ(result.epochs.back().objective, results[0].epochs.back().objective);
  }
}

TEST(Scd, TakesTheSameWayWithDenseAndSparseAllgather) {
  const Rows rows = sample_rows({.features = 400, .density = 0.02});
  TrainOptions options{.epochs = 3, .aggregation = "dense", .coordinates = 7};
  const TrainResult dense = descend(rows, 3, options)[0];
  options.aggregation = "sparse";
  const TrainResult sparse = descend(rows, 3, options)[0];
  EXPECT_EQ(dense.model.weights, sparse.model.weights);
  EXPECT_EQ(dense.algorithm, "dense_allgather");
  EXPECT_EQ(sparse.algorithm, "sparse_allgather");
  EXPECT_LT(sparse.epochs[2].bytes, dense.epochs[2].bytes);
  // Two thirds of the vector in each of 3·⌈400/3/7⌉ iterations, and heads. An allreduce would send twice as much.
  const double slices = 3 * 20 * 2.0 / 3 * 400 * sizeof(float);
  EXPECT_GT(dense.epochs[2].bytes, slices);
  EXPECT_LT(dense.epochs[2].bytes, 1.2 * slices);
}

TEST(Scd, GoesOnFromACheckpoint) {
  const testing::TemporaryDirectory scratch;
  const Rows rows = sample_rows({});
  TrainOptions options{.epochs = 6, .coordinates = 5};
  const auto expected = descend(rows, 2, options);
  options.checkpoint.path = scratch.path("scd");
  options.checkpoint.seconds = 1e9;
  int asked = 0;
  options.stop_requested = [&] { return ++asked == 11; };
  EXPECT_TRUE(descend(rows, 2, options)[0].was_stopped);
  options.stop_requested = nullptr;
  options.checkpoint.resume = true;
  const auto resumed = descend(rows, 2, options);
  EXPECT_LT(testing::largest_difference(resumed[0].model, expected[0].model), 1e-5);  // margins are summed anew
}

TEST(Scd, RefusesALossWithoutCurvature) {
  EXPECT_NE(testing::error_of([] { descend(sample_rows({}), 1, {.loss = Loss::hinge}); }).find("squared_hinge"),
            std::string::npos);
}

}  // namespace
}  // namespace tulle::linear
