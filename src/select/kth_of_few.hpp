// The k-th largest of so few keys that counting them again and again is faster than sorting or a histogram.
#pragma once

#include <cstdint>
#include <span>

namespace tulle {

/// Up to so many bytes of keys counting is faster than a round of radix selection, on every target.
inline constexpr std::size_t kFewKeysBytes = 16384;

/// Reads the keys as many times as they have bits, at most. REQUIRES: 1 <= k <= keys.size().
std::uint32_t kth_of_few(std::span<const std::uint32_t> keys, std::uint64_t k);
std::uint64_t kth_of_few(std::span<const std::uint64_t> keys, std::uint64_t k);

}  // namespace tulle
