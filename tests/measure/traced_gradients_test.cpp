#include "measure/traced_gradients.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/random_values.hpp"

namespace tulle::measure {
namespace {

constexpr std::uint64_t kRows = 400, kRowValues = 500;

TraceSpec matrix_with_spread(double spread) {
  TraceSpec spec;
  spec.trace.parameters = {{{"bias", 100}}, {{"weight", kRows * kRowValues}}};
  spec.trace.parameters[1].parameter.rows = kRows;
  spec.trace.parameters[1].row_spread = spread;
  return spec;
}

std::vector<float> common_of(const TraceSpec& spec) {
  return random_values(spec.trace.values(), Distribution::gaussian, spec.options.seed);
}

double mean_product(std::span<const float> left, std::span<const float> right) {
  double sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) sum += static_cast<double>(left[i]) * right[i];
  return sum / static_cast<double>(left.size());
}

double cosine(std::span<const float> left, std::span<const float> right) {
  return mean_product(left, right) / std::sqrt(mean_product(left, left) * mean_product(right, right));
}

TEST(TracedGradients, scales_of_rows_are_spread_as_the_trace_says) {
  const TraceSpec spec = matrix_with_spread(0.5);
  const std::vector<float> common = common_of(spec);
  TracedGradients gradients(common, spec, 1);
  gradients.begin_step(0);
  double sum = 0, squares = 0;
  for (std::uint64_t row = 0; row < kRows; ++row) {
    const std::span<const float> values = gradients.of(1).subspan(row * kRowValues, kRowValues);
    const double log_scale = std::log(mean_product(values, values)) / 2;
    sum += log_scale / kRows;
    squares += log_scale * log_scale / kRows;
  }
  EXPECT_NEAR(std::sqrt(squares - sum * sum), 0.5, 0.05);
}

TEST(TracedGradients, a_quarter_is_common_to_ranks_and_to_steps) {
  const TraceSpec spec = matrix_with_spread(0);
  const std::vector<float> common = common_of(spec);
  TracedGradients one(common, spec, 1), other(common, spec, 2);
  one.begin_step(0);
  other.begin_step(0);
  EXPECT_NEAR(cosine(one.of(1), other.of(1)), 0.25, 0.01);
  const std::vector<float> before(one.of(1).begin(), one.of(1).end());
  one.begin_step(1);
  EXPECT_NEAR(cosine(one.of(1), before), 0.25, 0.01);
}

}  // namespace
}  // namespace tulle::measure
