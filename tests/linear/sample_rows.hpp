// Small data for tests, from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tulle/base/philox.hpp"
#include "tulle/linear/dataset.hpp"

namespace tulle::testing {

struct SampleSpec {
  std::size_t rows = 200;
  std::uint32_t features = 30;
  double density = 0.3;
  int classes = 2;        ///< 2: labels −1 and 1; more: 0, 1, …; 0: a number
  bool integers = false;  ///< values and labels are small whole numbers
  std::uint64_t seed = 1;
};

inline linear::Rows sample_rows(const SampleSpec& spec) {
  Philox random(spec.seed), hidden(spec.seed, 1);
  linear::Rows rows;
  const auto vectors = static_cast<std::size_t>(std::max(spec.classes, 2) - (spec.classes <= 2 ? 1 : 0));
  std::vector<double> weights(vectors * spec.features);
  for (double& weight : weights) weight = hidden.uniform() * 2 - 1;
  for (std::size_t row = 0; row < spec.rows; ++row) {
    std::vector<double> margins(vectors);
    for (std::uint32_t i = 0; i < spec.features; ++i) {
      if (random.uniform() >= spec.density) continue;
      const double drawn = random.uniform() * 2 - 1;
      const auto value = static_cast<float>(spec.integers ? std::round(drawn * 2) : drawn);
      if (value == 0) continue;
      rows.add(i, value);
      for (std::size_t v = 0; v < vectors; ++v) margins[v] += weights[v * spec.features + i] * value;
    }
    const double noise = (random.uniform() - 0.5) / 2;
    if (spec.classes == 0) {
      rows.end_row(static_cast<float>(spec.integers ? std::round(margins[0]) : margins[0] + noise));
    } else if (spec.classes == 2) {
      rows.end_row(margins[0] + noise > 0 ? 1.0f : -1.0f);
    } else {
      rows.end_row(static_cast<float>(std::max_element(margins.begin(), margins.end()) - margins.begin()));
    }
  }
  return rows;
}

/// Rows [begin, end) as a data set of their own.
inline linear::Rows slice_rows(const linear::Rows& rows, std::size_t begin, std::size_t end) {
  linear::Rows part;
  for (std::size_t row = begin; row < end; ++row) part.append(rows[row], rows.label(row));
  return part;
}

inline void expect_same_rows(const linear::Rows& a, const linear::Rows& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t row = 0; row < a.size(); ++row) {
    ASSERT_EQ(a.label(row), b.label(row)) << "row " << row;
    ASSERT_TRUE(std::ranges::equal(a[row].indices, b[row].indices)) << "row " << row;
    for (std::size_t i = 0; i < a[row].indices.size(); ++i)
      ASSERT_EQ(a[row].value(i), b[row].value(i)) << "row " << row;
  }
}

/// All rows of a data set, in order.
inline linear::Rows all_rows(linear::Dataset& data) {
  linear::Rows all;
  for (std::size_t block = 0; block < data.blocks(); ++block) {
    const auto rows = data.block(block);
    for (std::size_t row = 0; row < rows->size(); ++row) all.append((*rows)[row], rows->label(row));
  }
  return all;
}

}  // namespace tulle::testing
