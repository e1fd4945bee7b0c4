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
