// Data sets with well-known optima, where they are: TULLE_DATA_DIR, else beside the project.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "linear/ranks.hpp"
#include "tulle/linear/featurize.hpp"

namespace tulle::linear {
namespace {

std::string data_path(const std::string& name) {
  const char* const directory = std::getenv("TULLE_DATA_DIR");
  const std::filesystem::path beside = std::filesystem::path(__FILE__).parent_path() / "../../../shared/data";
  return ((directory != nullptr ? std::filesystem::path(directory) : beside) / name).string();
}

#define SKIP_WITHOUT(name) \
  if (!std::filesystem::exists(data_path(name))) GTEST_SKIP() << data_path(name) << " is not there"

std::vector<Rows> parts_of(const std::string& name, int ranks) {
  std::vector<Rows> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    Dataset data = open_dataset(open_file(data_path(name)), {.part = {rank, ranks}});
    parts.push_back(testing::all_rows(data));
  }
  return parts;
}

TEST(RealData, A9aIsReadWholeByItsParts) {
  SKIP_WITHOUT("a9a.xz");
  std::size_t rows = 0;
  for (const Rows& part : parts_of("a9a.xz", 3)) rows += part.size();
  EXPECT_EQ(rows, 32561u);
}

TEST(RealData, LogisticRegressionOnA9aComesNearItsOptimum) {
  SKIP_WITHOUT("a9a.xz");
  // The minimum of the mean logistic loss without penalty is 0.3224.
  const auto results = testing::train_in_simulation(parts_of("a9a.xz", 2), {.epochs = 12, .batch_rows = 50});
  EXPECT_LT(results[0].epochs.back().objective, 0.3255);
  EXPECT_GT(results[0].epochs.back().objective, 0.3220);
}

// The minima are those of optima.py, which has the commands.
struct Case {
  Loss loss;
  Penalty penalty;
  double minimum;
};

Rows sorted_by_label(const Rows& rows) {
  Rows sorted;
  for (const float label : {-1.0f, 1.0f}) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows.label(row) == label) sorted.append(rows[row], label);
    }
  }
  return sorted;
}

TEST(RealData, EverySolverAndModelComesNearTheMinimumOnA9aWithDefaultOptions) {
  SKIP_WITHOUT("a9a.xz");
  const Rows rows = parts_of("a9a.xz", 1)[0], sorted = sorted_by_label(rows);
  for (const Case& each :
       {Case{Loss::logistic, {.l2 = 1e-4}, 0.324413}, Case{Loss::squared_hinge, {.l2 = 1e-4}, 0.422226},
        Case{Loss::squares, {.l2 = 1e-4}, 0.224304}, Case{Loss::squares, {.l1 = 1e-3}, 0.230762}}) {
    for (const Solver solver : {Solver::sgd, Solver::scd}) {
      double alone = 0;
      for (const std::size_t ranks : {1, 2, 4, 8}) {
        const Rows& taken = ranks % 4 == 0 ? sorted : rows;
        const auto parts = solver == Solver::scd ? std::vector<Rows>(ranks, taken) : testing::cut_rows(taken, ranks);
        const TrainOptions options{.solver = solver, .loss = each.loss, .penalty = each.penalty};
        const double objective = testing::train_in_simulation(parts, options)[0].objective.value();
        if (ranks == 1) alone = objective;
        // Coordinate descent needs more epochs where columns say nearly the same. Of the losses the squared hinge is
        // the steepest, so the noise of the last batches shows most.
        const bool is_steep = each.loss == Loss::squared_hinge;
        const double tolerance = solver == Solver::scd ? 3e-3 : is_steep ? 1.5e-3 : 1e-3;
        EXPECT_NEAR(objective, each.minimum, tolerance) << to_string(each.loss) << " on " << ranks;
        EXPECT_GT(objective, each.minimum - 1e-5);
        EXPECT_LT(objective, 1.05 * alone) << to_string(each.loss) << " on " << ranks;
      }
    }
  }
}

TEST(RealData, LassoOnA9aIsAsSparseAsItsOptimum) {
  SKIP_WITHOUT("a9a.xz");
  const TrainResult result =
      testing::train_in_simulation(parts_of("a9a.xz", 2), {.loss = Loss::squares, .penalty = {.l1 = 1e-3}})[0];
  EXPECT_LE(result.model.nonzeros(), 65u);  // of 123; the optimum has 53
}

TEST(RealData, UrlsAreToldApartByTheirHashedTrigrams) {
  SKIP_WITHOUT("urls.test.tsv.xz");
  Rows rows;
  const auto parse = [](std::string_view line, Rows& into) {
    return featurize_line(line, {.dimension = 1 << 18, .tokens = true, .value = FeatureValue::binary}, into);
  };
  read_lines(open_file(data_path("urls.test.tsv.xz")), {}, parse, false, [&](Rows each) {
    for (std::size_t row = 0; row < each.size(); ++row) rows.append(each[row], each.label(row));
  });
  ASSERT_EQ(rows.size(), 19208u);
  Dataset held_out(testing::slice_rows(rows, 16000, rows.size()));
  const LinearModel model = testing::train_in_simulation(testing::cut_rows(testing::slice_rows(rows, 0, 16000), 2),
                                                         {.epochs = 3, .batch_rows = 100})[0]
                                .model;
  run_threads(1, [&](Communicator& communicator) { EXPECT_GT(evaluate(communicator, held_out, model).accuracy, 0.9); });
}

}  // namespace
}  // namespace tulle::linear
