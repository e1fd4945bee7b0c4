#include "base/did_you_mean.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tulle {
namespace {

constexpr std::size_t kLongest = 64;  // what is longer is no misspelt name

// How many letters must be added, left out, replaced or swapped with their neighbours.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before_last, last(to.size() + 1), row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool is_swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (is_swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view name, std::string_view names) {
  constexpr std::string_view kBetween = ", ";
  if (name.empty() || name.size() > kLongest) return "";
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(name.size() / 3, 1) + 1;
  while (!names.empty()) {
    const std::string_view each = names.substr(0, names.find(kBetween));
    names.remove_prefix(std::min(each.size() + kBetween.size(), names.size()));
    if (each.size() > kLongest) continue;
    const std::size_t letters = distance(name, each);
    if (letters < least && letters < each.size()) nearest = each, least = letters;
  }
  return nearest.empty() ? "" : "; did you mean '" + std::string(nearest) + "'?";
}

}  // namespace tulle
