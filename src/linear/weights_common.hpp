// What both kinds of weights share: loops over a gradient and over a batch.
#pragma once

#include <algorithm>

#include "base/parallel.hpp"
#include "linear/weights.hpp"

namespace tulle::linear {

/// Calls feature(place in the weights, g) and intercept(vector, g) for what is not zero, and gives how often. Zeros are
/// left out so that dense and sparse sums do the same.
template <class Feature, class Intercept>
std::uint64_t for_each_gradient(const AnyStream& gradient, const GradientLayout& layout, Feature feature,
                                Intercept intercept) {
  const auto values = gradient.values_buffer().as<float>();
  std::uint64_t calls = 0;
  const auto call = [&](std::size_t vector, std::uint64_t index, float g) {
    if (g == 0) return;
    calls += 1;
    if (index == layout.features) {
      intercept(vector, g);
    } else {
      feature(vector * layout.features + index, g);
    }
  };
  if (gradient.is_dense()) {
    for (std::size_t vector = 0; vector < layout.vectors; ++vector) {
      const float* const g = values.data() + vector * layout.stride();
      for (std::uint64_t i = 0; i < layout.stride(); ++i) call(vector, i, g[i]);
    }
    return calls;
  }
  const auto indices = gradient.indices_buffer().as<std::uint32_t>();
  std::size_t vector = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    while (indices[i] >= (vector + 1) * layout.stride()) ++vector;
    if (vector == layout.vectors) break;
    call(vector, indices[i] - vector * layout.stride(), values[i]);
  }
  return calls;
}

/// margins[r] = Σ read(index)·value + intercept.
template <class Read>
void fill_margins(const Batch& batch, std::span<float> margins, double intercept, int threads, Read read) {
  constexpr std::size_t kRowsOfTask = 64;
  const auto fill = [&](std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) {
      const RowView row = batch.rows[r];
      double sum = intercept;
      for (std::size_t i = 0; i < row.indices.size(); ++i) sum += read(row.indices[i]) * row.value(i);
      margins[r] = static_cast<float>(sum);
    }
  };
  if (threads == 1) return fill(0, batch.size());
  parallel_for(threads, (batch.size() + kRowsOfTask - 1) / kRowsOfTask,
               [&](std::size_t task) { fill(task * kRowsOfTask, std::min(batch.size(), (task + 1) * kRowsOfTask)); });
}

}  // namespace tulle::linear
