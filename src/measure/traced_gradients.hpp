// Gradients that are drawn for the ranks of a trace.
//
// How it works. A batch's gradient is the mean gradient and noise. Values of a row, such as a convolution's filter, are
// normal with a scale of the row's own; scales are spread as the trace says. The mean gradient is *common* to all ranks
// and steps, the noise is a rank's and a step's. Shares were measured on ResNet-20: docs/simulation.md.
#pragma once

#include <span>
#include <vector>

#include "measure/trace_simulation.hpp"

namespace tulle::measure {

class TracedGradients {
 public:
  /// `common` has a normal value for each of the trace's, and outlives it.
  TracedGradients(const std::vector<float>& common, const TraceSpec& spec, int rank);
  void begin_step(int step);
  std::span<const float> of(gradient::ParameterId id) const;

 private:
  void add_rows(const gradient::TracedParameter& traced);

  std::span<const float> common_;
  std::vector<float> noise_, values_;
  std::vector<std::uint64_t> first_value_;  // of each parameter, and the end
  std::vector<std::uint64_t> row_ends_;
  std::vector<float> row_scales_;
};

}  // namespace tulle::measure
