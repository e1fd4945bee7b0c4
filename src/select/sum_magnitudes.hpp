// The mean of magnitudes, at the speed of memory.
#pragma once

#include "select/dense_input.hpp"
#include "select/key.hpp"

namespace tulle {

/// |values[0]| + |values[1]| + …, the same bits on every instruction set. Values of another side count as zeros.
double sum_magnitudes(const float* values, std::size_t count, Side side = Side::both);
double sum_magnitudes(const double* values, std::size_t count, Side side = Side::both);
double sum_magnitudes(const std::int32_t* values, std::size_t count, Side side = Side::both);
double sum_magnitudes(const std::int64_t* values, std::size_t count, Side side = Side::both);

/// One pass; 0 for no values. The same for any number of threads. REQUIRES: no addend.
double mean_magnitude(const DenseInput& input, Side side = Side::both);

}  // namespace tulle
