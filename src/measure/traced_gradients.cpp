#include "measure/traced_gradients.hpp"

#include <algorithm>
#include <cmath>

#include "measure/random_values.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::measure {
namespace {

// Of a value's variance. With more of it ranks agree more, and error buffers grow faster.
constexpr float kCommonShare = 0.25f;
// Of the noise from step to step: a prime, so that many steps pass before a value is where it was.
constexpr std::uint64_t kShift = 7919;

}  // namespace

TracedGradients::TracedGradients(const std::vector<float>& common, const TraceSpec& spec, int rank)
    : common_(common),
      noise_(random_values(common.size(), Distribution::gaussian,
                           Philox(spec.options.seed, 1).at(static_cast<std::uint64_t>(rank)))),
      values_(common.size()) {
  first_value_.push_back(0);
  std::vector<float> spreads;
  for (const gradient::TracedParameter& traced : spec.trace.parameters) {
    add_rows(traced);
    spreads.resize(row_ends_.size(), static_cast<float>(traced.row_spread));
  }
  row_scales_ = random_values(row_ends_.size(), Distribution::gaussian, Philox(spec.options.seed, 2).at(0));
  std::ranges::transform(row_scales_, spreads, row_scales_.begin(),
                         [](float normal, float spread) { return std::exp(spread * normal); });
}

// What is no matrix is one row.
void TracedGradients::add_rows(const gradient::TracedParameter& traced) {
  const std::uint64_t rows = std::max<std::uint64_t>(1, traced.parameter.rows), first = first_value_.back();
  for (std::uint64_t row = 1; row <= rows; ++row) row_ends_.push_back(first + row * traced.parameter.size / rows);
  first_value_.push_back(first + traced.parameter.size);
}

void TracedGradients::begin_step(int step) {
  const std::uint64_t shift = kShift * static_cast<std::uint64_t>(step) % noise_.size();
  std::rotate_copy(noise_.begin(), noise_.begin() + static_cast<std::ptrdiff_t>(shift), noise_.end(), values_.begin());
  std::uint64_t value = 0;
  for (std::size_t row = 0; row < row_ends_.size(); ++row) {
    const float of_common = row_scales_[row] * std::sqrt(kCommonShare);
    const float of_noise = row_scales_[row] * std::sqrt(1 - kCommonShare);
    for (; value < row_ends_[row]; ++value) values_[value] = of_common * common_[value] + of_noise * values_[value];
  }
}

std::span<const float> TracedGradients::of(gradient::ParameterId id) const {
  return std::span(values_).subspan(first_value_[id], first_value_[id + 1] - first_value_[id]);
}

}  // namespace tulle::measure
