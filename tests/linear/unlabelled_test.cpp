// k-means and principal components.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/temporary_directory.hpp"
#include "linear/ranks.hpp"
#include "tulle/base/error.hpp"
#include "tulle/linear/kmeans.hpp"
#include "tulle/linear/pca.hpp"

namespace tulle::linear {
namespace {

using testing::cut_rows;

template <class Result, class Options, class TaskOf>
std::vector<Result> simulate(const std::vector<Rows>& parts, const Options& options, TaskOf task) {
  std::vector<Dataset> data(parts.begin(), parts.end());
  std::vector<Result> results(data.size());
  SimWorld world({.ranks = static_cast<int>(data.size())});
  world.run([&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    results[rank] = co_await task(communicator, data[rank], options);
  });
  return results;
}

// Four heaps around (0, 0), (20, 0), (0, 20), (20, 20).
Rows four_heaps() {
  Philox random(5);
  Rows rows;
  for (int row = 0; row < 200; ++row) {
    rows.add(0, static_cast<float>(20 * (row % 2) + random.uniform()));
    rows.add(1, static_cast<float>(20 * (row / 2 % 2) + random.uniform()));
    rows.end_row(0);
  }
  return rows;
}

TEST(Kmeans, FindsTheHeaps) {
  const auto results = simulate<KmeansResult>(cut_rows(four_heaps(), 3), KmeansOptions{.clusters = 4}, kmeans_task);
  EXPECT_EQ(results[0].sizes, std::vector<double>(4, 50));
  for (std::size_t cluster = 0; cluster < 4; ++cluster) {
    for (std::size_t i = 0; i < 2; ++i) {
      const double place = results[0].centers[2 * cluster + i];
      EXPECT_LT(std::min(std::abs(place - 0.5), std::abs(place - 20.5)), 0.3);
    }
  }
  EXPECT_LT(results[0].inertias.back(), 200 * 2 / 12.0 * 1.3);
}

TEST(Kmeans, NeverGetsWorseAndIsTheSameOnAllRanks) {
  const Rows rows = testing::sample_rows({.rows = 300});
  const auto results =
      simulate<KmeansResult>(cut_rows(rows, 4), KmeansOptions{.clusters = 7, .tolerance = 0}, kmeans_task);
  const std::vector<double>& inertias = results[0].inertias;
  EXPECT_GT(inertias.size(), 2u);
  for (std::size_t i = 1; i < inertias.size(); ++i) EXPECT_LE(inertias[i], inertias[i - 1] * (1 + 1e-6));
  for (const KmeansResult& result : results) EXPECT_EQ(result.centers, results[0].centers);
  EXPECT_EQ(std::accumulate(results[0].sizes.begin(), results[0].sizes.end(), 0.0), 300);
}

TEST(Kmeans, OnSeveralRanksFindsWhatOneRankFinds) {
  const Rows rows = testing::sample_rows({.rows = 120});
  const KmeansOptions options{.clusters = 5};
  const auto alone = simulate<KmeansResult>({rows}, options, kmeans_task),
             many = simulate<KmeansResult>(cut_rows(rows, 3), options, kmeans_task);
  EXPECT_EQ(many[0].sizes, alone[0].sizes);
  EXPECT_NEAR(many[0].inertias.back(), alone[0].inertias.back(), 1e-3);
}

TEST(Kmeans, WithAsManyClustersAsRowsLeavesNoDistance) {
  const Rows rows = testing::sample_rows({.rows = 6});
  EXPECT_NEAR(simulate<KmeansResult>({rows}, KmeansOptions{.clusters = 6}, kmeans_task)[0].inertias.back(), 0, 1e-5);
  EXPECT_THROW(simulate<KmeansResult>({rows}, KmeansOptions{.clusters = 7}, kmeans_task), Error);
}

// Variances 9 along (3, 4)/5, 1 across it, about a mean that is not zero.
Rows stretched() {
  Philox random(3);
  Rows rows;
  for (int row = 0; row < 4000; ++row) {
    const double along = 3 * std::sqrt(12.0) * (random.uniform() - 0.5),
                 across = std::sqrt(12.0) * (random.uniform() - 0.5);
    rows.add(0, static_cast<float>(10 + 0.6 * along - 0.8 * across));
    rows.add(1, static_cast<float>(-5 + 0.8 * along + 0.6 * across));
    rows.end_row(0);
  }
  return rows;
}

TEST(Pca, FindsTheDirectionsOfLargestVariance) {
  const auto results = simulate<PcaResult>(cut_rows(stretched(), 3), PcaOptions{.components = 2}, pca_task);
  const std::vector<float>& v = results[0].components;
  EXPECT_NEAR(std::abs(0.6 * v[0] + 0.8 * v[1]), 1, 1e-3);
  EXPECT_NEAR(v[0] * v[2] + v[1] * v[3], 0, 1e-5);
  EXPECT_NEAR(results[0].variances[0], 9, 0.4);
  EXPECT_NEAR(results[0].variances[1], 1, 0.05);
  for (const PcaResult& result : results) EXPECT_EQ(result.components, v);
}

TEST(Pca, WithoutCenteringFindsTheMeanFirst) {
  const auto results = simulate<PcaResult>({stretched()}, PcaOptions{.components = 1, .is_centered = false}, pca_task);
  EXPECT_GT(results[0].variances[0], 100);
}

TEST(Pca, FindsEigenvectorsOfTheCovariance) {
  const Rows rows = testing::sample_rows({.rows = 150, .features = 12});
  std::vector<double> mean(12), covariance(144);
  for (std::size_t row = 0; row < 150; ++row) {
    for (std::size_t i = 0; i < rows[row].indices.size(); ++i) mean[rows[row].indices[i]] += rows[row].value(i) / 150;
  }
  for (std::size_t row = 0; row < 150; ++row) {
    std::vector<double> x(12);
    for (std::size_t i = 0; i < rows[row].indices.size(); ++i) x[rows[row].indices[i]] = rows[row].value(i);
    for (std::size_t i = 0; i < 144; ++i)
      covariance[i] += (x[i / 12] - mean[i / 12]) * (x[i % 12] - mean[i % 12]) / 150;
  }
  const auto results = simulate<PcaResult>(
      cut_rows(rows, 2), PcaOptions{.components = 3, .iterations = 3000, .tolerance = 1e-9}, pca_task);
  for (std::size_t v = 0; v < 3; ++v) {
    for (std::size_t i = 0; i < 12; ++i) {
      double product = 0;
      for (std::size_t j = 0; j < 12; ++j) product += covariance[i * 12 + j] * results[0].components[v * 12 + j];
      EXPECT_NEAR(product, results[0].variances[v] * results[0].components[v * 12 + i], 2e-3);
    }
  }
}

}  // namespace
}  // namespace tulle::linear
