#include "tulle/linear/rows.hpp"

#include <algorithm>

namespace tulle::linear {

std::uint64_t Rows::features() const {
  const auto largest = std::max_element(indices_.begin(), indices_.end());
  return largest == indices_.end() ? 0 : std::uint64_t{*largest} + 1;
}

void Rows::drop_open_row() {
  indices_.resize(begins_.back());
  if (!values_.empty()) values_.resize(begins_.back());
}

void Rows::append(RowView row, float label) {
  for (std::size_t i = 0; i < row.indices.size(); ++i) add(row.indices[i], row.value(i));
  end_row(label);
}

void Rows::clear() {
  labels_.clear();
  begins_.assign(1, 0);
  indices_.clear();
  values_.clear();
}

}  // namespace tulle::linear
