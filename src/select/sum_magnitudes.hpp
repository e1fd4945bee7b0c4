// The mean of magnitudes, at the speed of memory.
#pragma once

#include "select/dense_input.hpp"

namespace tulle {

/// |values[0]| + |values[1]| + …, the same bits on every instruction set.
double sum_magnitudes(const float* values, std::size_t count);
double sum_magnitudes(const double* values, std::size_t count);
double sum_magnitudes(const std::int32_t* values, std::size_t count);
double sum_magnitudes(const std::int64_t* values, std::size_t count);

/// One pass; 0 for no values. The same for any number of threads. REQUIRES: no addend.
double mean_magnitude(const DenseInput& input);

}  // namespace tulle
