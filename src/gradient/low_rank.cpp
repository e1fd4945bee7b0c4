#include "gradient/low_rank.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "tulle/base/philox.hpp"

namespace tulle::gradient {
namespace {

// As many sums as keep the vector units busy, in an order of their own: compilers make vectors of them.
constexpr std::size_t kLanes = 16;
// Columns of M that are worked on together: their part of the right factor stays in the L1 cache while rows pass.
constexpr std::size_t kBlock = 2048;
// Rows that are added at once, so that a sum is loaded and stored a quarter as often.
constexpr std::size_t kRowsAtOnce = 4;

float dot(const float* a, const float* b, std::size_t count) {
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i] * b[i];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

double dot_in_f64(std::span<const float> a, std::span<const float> b) {
  std::array<double, 8> lanes{};
  for (std::size_t i = 0; i < a.size(); ++i) {
    lanes[i % lanes.size()] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// sums[j] += Σ factors[r]·rows[r][j]
void add_rows(const float* rows, std::size_t stride, std::array<float, kRowsAtOnce> factors, std::size_t count,
              float* __restrict sums) {
  const float *a = rows, *b = rows + stride, *c = rows + 2 * stride, *d = rows + 3 * stride;
  for (std::size_t j = 0; j < count; ++j) {
    sums[j] += (factors[0] * a[j] + factors[1] * b[j]) + (factors[2] * c[j] + factors[3] * d[j]);
  }
}

void add_row(const float* row, float factor, std::size_t count, float* __restrict sums) {
  for (std::size_t j = 0; j < count; ++j) sums[j] += factor * row[j];
}

// Columns [begin, begin + count) of M, times left, added to the same part of each column of right. Rows are the outer
// loop, so that each is read once however many columns the factors have.
void add_block(const float* matrix, MatrixShape shape, std::span<const float> left, std::size_t begin,
               std::size_t count, std::span<float> right) {
  const std::size_t rank = right.size() / shape.columns;
  std::size_t row = 0;
  for (; row + kRowsAtOnce <= shape.rows; row += kRowsAtOnce) {
    for (std::size_t c = 0; c < rank; ++c) {
      const float* const factors = left.data() + c * shape.rows + row;
      add_rows(matrix + row * shape.columns + begin, shape.columns, {factors[0], factors[1], factors[2], factors[3]},
               count, right.data() + c * shape.columns + begin);
    }
  }
  for (; row < shape.rows; ++row) {
    for (std::size_t c = 0; c < rank; ++c) {
      add_row(matrix + row * shape.columns + begin, left[c * shape.rows + row], count,
              right.data() + c * shape.columns + begin);
    }
  }
}

std::span<float> column(std::span<float> factor, std::size_t length, std::size_t c) {
  return factor.subspan(c * length, length);
}
// target row i, from column `begin` on, += sign·left·rightᵀ.
void add_expanded(std::span<const float> left, std::span<const float> right, MatrixShape shape, float sign,
                  float* target) {
  const std::size_t rank = left.size() / shape.rows;
  for (std::size_t begin = 0; begin < shape.columns; begin += kBlock) {
    const std::size_t count = std::min(kBlock, shape.columns - begin);
    for (std::size_t row = 0; row < shape.rows; ++row) {
      float* const sums = target + row * shape.columns + begin;
      for (std::size_t c = 0; c < rank; ++c) {
        add_row(right.data() + c * shape.columns + begin, sign * left[c * shape.rows + row], count, sums);
      }
    }
  }
}

void require_factors(MatrixShape shape, [[maybe_unused]] std::span<const float> matrix,
                     [[maybe_unused]] std::span<const float> left, [[maybe_unused]] std::span<const float> right) {
  assert(matrix.size() == shape.size());
  assert(left.size() * shape.columns == right.size() * shape.rows);
  (void)shape;
}

// Four numbers of 16 bits added up: near enough to Gaussian, and exact, which no library's logarithm is.
void draw_column(std::span<float> values, std::uint64_t seed, std::uint64_t step, std::size_t c) {
  const Philox random(seed, step << 16 | c);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = random.at(i);
    const auto sum =
        static_cast<std::int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    values[i] = static_cast<float>(sum - 2 * 0xffff) * 0x1p-15f;
  }
}

// Takes out of the column what it has in common with the first `earlier` ones.
void project(std::span<float> factor, std::size_t length, std::size_t earlier, std::span<float> current) {
  for (std::size_t c = 0; c < earlier; ++c) {
    const std::span<float> unit = column(factor, length, c);
    const double share = dot_in_f64(unit, current);
    for (std::size_t i = 0; i < length; ++i) current[i] = static_cast<float>(current[i] - share * unit[i]);
  }
}

}  // namespace

MatrixShape matrix_of(std::span<const std::uint64_t> extents) {
  if (extents.empty()) return {1, 1};
  std::size_t rest = 1;
  for (const std::uint64_t extent : extents.subspan(1)) rest *= extent;
  return extents.size() == 1 ? MatrixShape{1, extents[0]} : MatrixShape{extents[0], rest};
}

std::size_t usable_rank(MatrixShape shape, std::size_t rank) { return std::min({rank, shape.rows, shape.columns}); }

bool low_rank_pays(MatrixShape shape, std::size_t rank) {
  return (shape.rows + shape.columns) * usable_rank(shape, rank) < shape.size();
}

void multiply(std::span<const float> matrix, MatrixShape shape, std::span<const float> right, std::span<float> left) {
  require_factors(shape, matrix, left, right);
  const std::size_t rank = left.size() / std::max<std::size_t>(shape.rows, 1);
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t c = 0; c < rank; ++c) {
      left[c * shape.rows + row] =
          dot(matrix.data() + row * shape.columns, right.data() + c * shape.columns, shape.columns);
    }
  }
}

void multiply_transposed(std::span<const float> matrix, MatrixShape shape, std::span<const float> left,
                         std::span<float> right) {
  require_factors(shape, matrix, left, right);
  std::ranges::fill(right, 0.0f);
  for (std::size_t begin = 0; begin < shape.columns; begin += kBlock) {
    add_block(matrix.data(), shape, left, begin, std::min(kBlock, shape.columns - begin), right);
  }
}

void expand(std::span<const float> left, std::span<const float> right, MatrixShape shape, std::span<float> product) {
  require_factors(shape, product, left, right);
  std::ranges::fill(product, 0.0f);
  if (shape.size() > 0) add_expanded(left, right, shape, 1, product.data());
}

void subtract_expanded(std::span<const float> left, std::span<const float> right, MatrixShape shape,
                       std::span<float> matrix) {
  require_factors(shape, matrix, left, right);
  if (shape.size() > 0) add_expanded(left, right, shape, -1, matrix.data());
}

// What is left of a column after projection is noise where it is far smaller than the column was. Where it is smaller,
// rounding left something of the earlier columns that is no longer small beside it: a second projection takes that out.
// In f64, where neither a column's length nor its reciprocal leaves the range. A value that is not finite stays one.
void orthogonalize(std::span<float> factor, std::size_t length) {
  constexpr double kNoise = 1e-5;
  for (std::size_t c = 0; c * length < factor.size(); ++c) {
    const std::span<float> current = column(factor, length, c);
    const double before = std::sqrt(dot_in_f64(current, current));
    project(factor, length, c, current);
    double norm = std::sqrt(dot_in_f64(current, current));
    if (norm < before / 2) {
      project(factor, length, c, current);
      norm = std::sqrt(dot_in_f64(current, current));
    }
    const double scale = norm > kNoise * before ? 1 / norm : 0.0;
    for (float& value : current) value = static_cast<float>(scale * value);
  }
}

void draw_factor(std::span<float> factor, std::size_t length, std::uint64_t seed, std::uint64_t step) {
  for (std::size_t c = 0; c * length < factor.size(); ++c) draw_column(column(factor, length, c), seed, step, c);
}

void renew_factor(std::span<float> factor, std::size_t length, std::uint64_t seed, std::uint64_t step) {
  for (std::size_t c = 0; c * length < factor.size(); ++c) {
    const std::span<float> values = column(factor, length, c);
    double squares = dot_in_f64(values, values);
    if (!(squares > 0 && std::isfinite(squares))) {
      draw_column(values, seed, step, c);
      squares = dot_in_f64(values, values);
    }
    const double scale = std::ldexp(1.0, -std::ilogb(std::sqrt(squares)));
    for (float& value : values) value = static_cast<float>(scale * value);
  }
}

}  // namespace tulle::gradient
