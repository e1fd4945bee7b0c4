// How many values a share of them is: one rule for selectors, and for rows and recipes that select.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tulle {

/// Rounded up, so that no share above 0 is nothing. What the product's rounding adds is no value more: 7 % of 100
/// are 7. REQUIRES: 0 <= share <= 1.
inline std::uint64_t values_of_share(double share, std::uint64_t count) {
  const double wanted = share * static_cast<double>(count) * (1 - 0x1p-51);
  return std::min(count, static_cast<std::uint64_t>(std::ceil(wanted)));
}

}  // namespace tulle
