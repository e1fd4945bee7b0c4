// Labelled sparse rows in memory: what files become and what solvers read.
//
// Threads: rows may be read by several threads, and changed by one while no other uses them. Functions that add rows
// take amortized O(1) an entry and end the views that were given before; after std::bad_alloc only clear() may be
// called.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/base/buffer.hpp"

#pragma GCC visibility push(default)
namespace tulle::linear {

/// Features are numbered below this; what lies above is for intercepts and for what travels with a gradient.
inline constexpr std::uint64_t kMaxFeatures = (std::uint64_t{1} << 32) - 1024;

/// The non-zeros of one row, by increasing index; a view that lives until the rows change. No values at all means that
/// every one of them is 1.
struct RowView {
  std::span<const std::uint32_t> indices;
  std::span<const float> values;

  float value(std::size_t i) const { return values.empty() ? 1.0f : values[i]; }
};

/// Rows one after the other (CSR). Values are stored from the first one that is not 1.
class Rows {
 public:
  std::size_t size() const { return labels_.size(); }
  std::size_t nonzeros() const { return indices_.size(); }
  std::size_t bytes() const {
    return size() * (sizeof(float) + sizeof(std::uint64_t)) + nonzeros() * (is_binary() ? 4 : 8);
  }
  bool is_binary() const { return values_.empty(); }
  /// One more than the largest index; 0 where there is none. One pass over the indices.
  std::uint64_t features() const;

  /// REQUIRES: row < size(), here and below.
  float label(std::size_t row) const { return labels_[row]; }
  RowView operator[](std::size_t row) const {
    const std::uint64_t begin = begins_[row], length = begins_[row + 1] - begin;
    return {std::span(indices_).subspan(begin, length),
            is_binary() ? std::span<const float>() : std::span(values_).subspan(begin, length)};
  }

  /// Adds an entry to the row that end_row() will end. REQUIRES: indices of a row increase.
  void add(std::uint32_t index, float value) {
    if (value != 1.0f && is_binary()) values_.assign(indices_.size(), 1.0f);
    if (value != 1.0f || !values_.empty()) values_.push_back(value);
    indices_.push_back(index);
  }
  void end_row(float label) {
    labels_.push_back(label);
    begins_.push_back(indices_.size());
  }
  /// Forgets the entries since the last end_row().
  void drop_open_row();
  void append(RowView row, float label);
  void clear();

  std::span<const float> labels() const { return labels_; }
  std::span<const std::uint64_t> begins() const { return begins_; }
  std::span<const std::uint32_t> indices() const { return indices_; }
  std::span<const float> values() const { return values_; }
  /// Entries of the row that is not ended yet; for readers that get them in any order.
  std::span<std::uint32_t> open_indices() { return std::span(indices_).subspan(begins_.back()); }
  std::span<float> open_values() {
    return is_binary() ? std::span<float>() : std::span(values_).subspan(begins_.back());
  }

 private:
  PoolVector<float> labels_;
  PoolVector<std::uint64_t> begins_{0};
  PoolVector<std::uint32_t> indices_;
  PoolVector<float> values_;
};

}  // namespace tulle::linear
#pragma GCC visibility pop
