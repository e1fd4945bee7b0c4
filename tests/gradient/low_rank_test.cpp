// powersgd's arithmetic: against obvious loops, by hand, and as the method uses it.
#include "gradient/low_rank.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tulle/base/philox.hpp"

namespace tulle::gradient {
namespace {

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  Philox random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

double product_at(const std::vector<float>& left, const std::vector<float>& right, MatrixShape shape, std::size_t row,
                  std::size_t column) {
  double sum = 0;
  for (std::size_t c = 0; c * shape.rows < left.size(); ++c) {
    sum += static_cast<double>(left[c * shape.rows + row]) * static_cast<double>(right[c * shape.columns + column]);
  }
  return sum;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

struct Case {
  MatrixShape shape;
  std::size_t rank;
};
// Around the sizes at which loops are cut: 4 rows, 16 lanes, blocks of 2048 columns.
const Case kCases[] = {{{1, 1}, 1},   {{1, 7}, 1},    {{3, 5}, 2},    {{4, 16}, 4},    {{5, 17}, 3},
                       {{64, 33}, 4}, {{7, 2047}, 2}, {{9, 2049}, 3}, {{130, 4100}, 4}};

TEST(LowRank, products_are_what_obvious_loops_give) {
  for (const auto& [shape, rank] : kCases) {
    SCOPED_TRACE(::testing::Message() << shape.rows << " × " << shape.columns << ", rank " << rank);
    const auto matrix = random_values(shape.size(), 1), right = random_values(shape.columns * rank, 2);
    std::vector<float> left(shape.rows * rank), back(shape.columns * rank);
    multiply(matrix, shape, right, left);
    multiply_transposed(matrix, shape, left, back);
    for (std::size_t c = 0; c < rank; ++c) {
      for (std::size_t row = 0; row < shape.rows; ++row) {
        double sum = 0;
        for (std::size_t j = 0; j < shape.columns; ++j) {
          sum +=
              static_cast<double>(matrix[row * shape.columns + j]) * static_cast<double>(right[c * shape.columns + j]);
        }
        ASSERT_NEAR(left[c * shape.rows + row], sum, 1e-4);
      }
      for (std::size_t j = 0; j < shape.columns; ++j) {
        double sum = 0;
        for (std::size_t row = 0; row < shape.rows; ++row) {
          sum += static_cast<double>(matrix[row * shape.columns + j]) * static_cast<double>(left[c * shape.rows + row]);
        }
        ASSERT_NEAR(back[c * shape.columns + j], sum, 1e-3);
      }
    }
  }
}

TEST(LowRank, expansion_is_delivered_and_what_is_subtracted_is_the_same) {
  for (const auto& [shape, rank] : kCases) {
    const auto left = random_values(shape.rows * rank, 3), right = random_values(shape.columns * rank, 4);
    const std::vector<float> before = random_values(shape.size(), 5);
    std::vector<float> product(shape.size(), 9.0f), rest = before;
    expand(left, right, shape, product);
    subtract_expanded(left, right, shape, rest);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      ASSERT_NEAR(product[i], product_at(left, right, shape, i / shape.columns, i % shape.columns), 1e-5);
      ASSERT_NEAR(rest[i] + product[i], before[i], 1e-5);
    }
  }
}

TEST(LowRank, columns_become_orthonormal) {
  for (const std::size_t rank : {1u, 2u, 4u, 8u}) {
    constexpr std::size_t kLength = 100;
    auto factor = random_values(kLength * rank, 6);
    orthogonalize(factor, kLength);
    for (std::size_t a = 0; a < rank; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (std::size_t i = 0; i < kLength; ++i) {
          dot += static_cast<double>(factor[a * kLength + i]) * static_cast<double>(factor[b * kLength + i]);
        }
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-5);
      }
    }
  }
}

TEST(LowRank, columns_that_depend_on_others_become_zero) {
  std::vector<float> factor{3, 0, 4, 6, 0, 8, 0, 0, 0, 0, 2, 0};  // (3, 0, 4), twice that, 0, (0, 2, 0)
  orthogonalize(factor, 3);
  const std::vector<float> expected{0.6f, 0, 0.8f, 0, 0, 0, 0, 0, 0, 0, 1, 0};
  for (std::size_t i = 0; i < factor.size(); ++i) EXPECT_NEAR(factor[i], expected[i], 1e-6) << i;
  // What rounding leaves of a multiple is no direction of its own.
  std::vector<float> multiples = random_values(50, 11);
  for (std::size_t i = 0; i < 50; ++i) multiples.push_back(0.3f * multiples[i]);
  orthogonalize(multiples, 50);
  for (std::size_t i = 50; i < 100; ++i) EXPECT_EQ(multiples[i], 0) << i;
}

void power_step(const std::vector<float>& matrix, MatrixShape shape, std::vector<float>& left,
                std::vector<float>& right) {
  multiply(matrix, shape, right, left);
  orthogonalize(left, shape.rows);
  multiply_transposed(matrix, shape, left, right);
}

// The point of the method: a matrix of rank 2 is delivered whole by rank 2.
TEST(LowRank, a_matrix_of_that_rank_is_delivered_whole) {
  const MatrixShape shape{40, 30};
  const auto a = random_values(80, 7), b = random_values(60, 8);
  std::vector<float> matrix(shape.size()), left(80), right(60);
  expand(a, b, shape, matrix);
  draw_factor(right, shape.columns, 1, 0);
  power_step(matrix, shape, left, right);
  const double whole = norm_of(matrix);
  subtract_expanded(left, right, shape, matrix);
  EXPECT_LT(norm_of(matrix), 1e-5 * whole);
}

// Warm starts are power iterations: what is left of a fixed matrix shrinks towards the best of that rank.
TEST(LowRank, warm_starts_come_nearer) {
  const MatrixShape shape{60, 50};
  std::vector<float> matrix = random_values(shape.size(), 9), left(60 * 2), right(50 * 2);
  draw_factor(right, shape.columns, 1, 0);
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    power_step(matrix, shape, left, right);
    std::vector<float> rest = matrix;
    subtract_expanded(left, right, shape, rest);
    last = norm_of(rest);
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.99 * first);
}

TEST(LowRank, factors_are_drawn_from_seed_step_and_column) {
  std::vector<float> one(2000), again(2000), other(2000);
  draw_factor(one, 1000, 5, 1);
  draw_factor(again, 1000, 5, 1);
  EXPECT_EQ(one, again);
  draw_factor(other, 1000, 5, 2);
  EXPECT_NE(one, other);
  EXPECT_FALSE(std::equal(one.begin(), one.begin() + 1000, one.begin() + 1000));
  double mean = 0;
  for (const float value : one) mean += static_cast<double>(value) / 2000;
  EXPECT_NEAR(mean, 0, 0.1);
  EXPECT_NEAR(norm_of(one) / std::sqrt(2000.0), std::sqrt(4.0 / 3), 0.1);
}

TEST(LowRank, a_warm_start_from_nothing_is_drawn_anew) {
  std::vector<float> drawn(8);
  draw_factor(drawn, 2, 1, 7);
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> factor{1, 0.5f, 0, 0, kNan, 1, kInfinity, 1};
  renew_factor(factor, 2, 1, 7);
  EXPECT_EQ(factor[0], 1);
  EXPECT_EQ(factor[1], 0.5f);
  for (std::size_t i = 2; i < 8; i += 2) {
    EXPECT_EQ(factor[i] / factor[i + 1], drawn[i] / drawn[i + 1]) << i;
    EXPECT_NE(factor[i], 0);
  }
}

TEST(LowRank, a_warm_start_has_the_length_of_one_whatever_the_last_step_was) {
  for (const float scale : {1e-40f, 1e-21f, 1.0f, 1e18f, 1e38f}) {
    std::vector<float> factor{3 * scale, 0, 1.5f * scale, 0.75f * scale};
    renew_factor(factor, 2, 1, 7);
    for (std::size_t i = 0; i < 4; i += 2) {
      const double length = std::hypot(factor[i], factor[i + 1]);
      EXPECT_TRUE(length >= 1 && length < 2) << scale;
    }
    EXPECT_NEAR(factor[2], 2 * factor[3], 1e-4);
  }
}

TEST(LowRank, columns_of_any_scale_become_orthonormal) {
  for (const float scale : {1e-44f, 1e-30f, 1e30f, 3e38f}) {
    std::vector<float> factor{scale, 0, 0, scale, scale, 0};
    orthogonalize(factor, 3);
    const std::vector<float> expected{1, 0, 0, 0, 1, 0};
    for (std::size_t i = 0; i < factor.size(); ++i) EXPECT_NEAR(factor[i], expected[i], 1e-6) << scale;
  }
}

TEST(LowRank, tensors_are_matrices_of_their_first_extent) {
  const std::uint64_t kernel[] = {64, 3, 7, 7}, vector[] = {10};
  EXPECT_EQ(matrix_of(kernel), (MatrixShape{64, 147}));
  EXPECT_EQ(matrix_of(vector), (MatrixShape{1, 10}));
  EXPECT_TRUE(low_rank_pays({64, 147}, 4));
  EXPECT_FALSE(low_rank_pays({1, 10}, 1));
  EXPECT_FALSE(low_rank_pays({8, 8}, 4));
  EXPECT_EQ(usable_rank({3, 100}, 4), 3u);
}

}  // namespace
}  // namespace tulle::gradient
