// Matrices of low rank: what powersgd does to a parameter, without the exchange. Vogels et al. 2019.
//
// A parameter is a matrix M of n rows and m columns, row after row. A step of rank r is, with sums over ranks between:
//
//   left = M·right          n × r
//   orthogonalize(left)
//   right = Mᵀ·left         m × r, kept for the next step (*warm start*)
//   M̂ = left·rightᵀ        delivered; M − M̂ stays as the residual
//
// *left* and *right* are PowerSGD's P and Q. They are stored column after column, as the r vectors that they are.
// Pure functions on the caller's memory, for any thread; they allocate nothing. What ranks compute from the same bits
// has the same bits on every processor: sums are made in a fixed order. Each product reads M once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle::gradient {

struct MatrixShape {
  std::size_t rows = 0;
  std::size_t columns = 0;

  std::size_t size() const { return rows * columns; }
  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};

/// A tensor as a matrix, as PyTorch's hook sees it: the first extent are the rows, the others together the columns.
/// One row where there are fewer than two extents: such parameters are sent whole.
MatrixShape matrix_of(std::span<const std::uint64_t> extents);

/// The rank that a matrix can have at most of `rank`.
std::size_t usable_rank(MatrixShape shape, std::size_t rank);
/// Whether both factors together have fewer values than the matrix.
bool low_rank_pays(MatrixShape shape, std::size_t rank);

/// left = M·right. REQUIRES: matrix.size() == shape.size(), left.size() == rows·r and right.size() == columns·r for one
/// r, as for all that follow; spans do not overlap.
void multiply(std::span<const float> matrix, MatrixShape shape, std::span<const float> right, std::span<float> left);
/// right = Mᵀ·left.
void multiply_transposed(std::span<const float> matrix, MatrixShape shape, std::span<const float> left,
                         std::span<float> right);
/// product = left·rightᵀ.
void expand(std::span<const float> left, std::span<const float> right, MatrixShape shape, std::span<float> product);
/// matrix −= left·rightᵀ.
void subtract_expanded(std::span<const float> left, std::span<const float> right, MatrixShape shape,
                       std::span<float> matrix);

/// Makes the columns of `factor`, `length` values each, orthonormal (modified Gram-Schmidt, in f64). A column that
/// depends on those before it becomes 0, and with it what it would have delivered: that stays in the residual.
void orthogonalize(std::span<float> factor, std::size_t length);

/// Fills the columns of `factor` with numbers drawn from a bell around 0: the same on all ranks for the same seed and
/// step.
void draw_factor(std::span<float> factor, std::size_t length, std::uint64_t seed, std::uint64_t step);
/// Makes a warm start of the factor that the last step ended with. Columns that are 0, which would deliver nothing for
/// ever, or not finite are drawn. Each is multiplied by a power of two, so that its length is from 1 up to 2: products
/// with it stay near the size of M's values, whatever that is, and no bit of its direction changes.
void renew_factor(std::span<float> factor, std::size_t length, std::uint64_t seed, std::uint64_t step);

}  // namespace tulle::gradient
