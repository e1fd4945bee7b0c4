// The data by columns, as coordinate descent reads it.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/base/buffer.hpp"
#include "tulle/linear/dataset.hpp"

namespace tulle::linear {

/// Columns that are not empty, in the order of their features (CSC). No values at all means that every one is 1.
class Columns {
 public:
  /// Reads all rows of `data` once for each of the two passes.
  explicit Columns(Dataset& data);

  struct View {
    std::span<const std::uint32_t> rows;
    std::span<const float> values;
    float value(std::size_t i) const { return values.empty() ? 1.0f : values[i]; }
  };

  std::size_t size() const { return features_.size(); }
  std::size_t rows() const { return labels_.size(); }
  std::uint64_t nonzeros() const { return row_numbers_.size(); }
  std::span<const float> labels() const { return labels_; }
  std::uint32_t feature(std::size_t column) const { return features_[column]; }
  /// The column of a feature. REQUIRES: it is not empty.
  std::size_t column_of(std::uint32_t feature) const;
  View operator[](std::size_t column) const {
    const std::uint64_t begin = begins_[column], length = begins_[column + 1] - begin;
    return {std::span(row_numbers_).subspan(begin, length),
            values_.empty() ? std::span<const float>() : std::span(values_).subspan(begin, length)};
  }

 private:
  PoolVector<float> labels_;
  PoolVector<std::uint32_t> features_;
  PoolVector<std::uint64_t> begins_;
  PoolVector<std::uint32_t> row_numbers_;
  PoolVector<float> values_;
};

}  // namespace tulle::linear
