// What selectors read, with its type known at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tulle/stream/stream.hpp"

namespace tulle {

/// The values of a range of a dense vector.
struct DenseInput {
  ValueType type{};
  std::uint64_t dimension = 0;
  Range range;
  const std::byte* values = nullptr;  ///< of the range's first
  std::byte* residual = nullptr;      ///< the same memory, where what is selected is to become 0
  const std::byte* addend = nullptr;  ///< added to the residual before anything else
  double decay = 1;                   ///< by which the residual is multiplied before that
  int threads = 1;

  /// The same after a pass has added the addend.
  DenseInput accumulated() const {
    DenseInput input = *this;
    input.addend = nullptr;
    input.decay = 1;
    return input;
  }
};

/// Whether a second pass finds the values of the first in the cache.
inline bool stays_cached(const DenseInput& input) {
  constexpr std::uint64_t kCachedBytes = 1u << 18;
  return input.range.size() * size_of(input.type) <= kCachedBytes;
}

}  // namespace tulle
