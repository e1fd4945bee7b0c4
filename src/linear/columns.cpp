#include "linear/columns.hpp"

#include <algorithm>
#include <utility>

namespace tulle::linear {

Columns::Columns(Dataset& data) {
  PoolVector<std::uint64_t> places(data.features());  // counts, then where the next entry of a feature goes
  bool is_binary = true;
  data.for_each_block([&](const Rows& rows) {
    is_binary = is_binary && rows.is_binary();
    labels_.insert(labels_.end(), rows.labels().begin(), rows.labels().end());
    for (const std::uint32_t index : rows.indices()) places[index] += 1;
  });
  std::uint64_t end = 0;
  for (std::uint64_t feature = 0; feature < places.size(); ++feature) {
    const std::uint64_t count = std::exchange(places[feature], end);
    if (count == 0) continue;
    features_.push_back(static_cast<std::uint32_t>(feature));
    begins_.push_back(end);
    end += count;
  }
  begins_.push_back(end);
  row_numbers_.resize(end);
  values_.resize(is_binary ? 0 : end);
  std::uint32_t number = 0;
  data.for_each_block([&](const Rows& rows) {
    for (std::size_t row = 0; row < rows.size(); ++row, ++number) {
      const RowView view = rows[row];
      for (std::size_t i = 0; i < view.indices.size(); ++i) {
        const std::uint64_t place = places[view.indices[i]]++;
        row_numbers_[place] = number;
        if (!is_binary) values_[place] = view.value(i);
      }
    }
  });
}

std::size_t Columns::column_of(std::uint32_t feature) const {
  return static_cast<std::size_t>(std::lower_bound(features_.begin(), features_.end(), feature) - features_.begin());
}

}  // namespace tulle::linear
