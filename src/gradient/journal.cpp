#include "gradient/journal.hpp"

#include <algorithm>

namespace tulle::gradient {

void ArrayCopy::save(std::span<const std::span<std::byte>> arrays) {
  std::size_t bytes = 0;
  for (const std::span<std::byte> array : arrays) bytes += array.size();
  bytes_.resize(bytes);
  auto place = bytes_.begin();
  for (const std::span<std::byte> array : arrays) place = std::ranges::copy(array, place).out;
}

void ArrayCopy::restore(std::span<const std::span<std::byte>> arrays) const {
  auto place = bytes_.begin();
  for (const std::span<std::byte> array : arrays) {
    std::copy_n(place, array.size(), array.begin());
    place += static_cast<std::ptrdiff_t>(array.size());
  }
}

}  // namespace tulle::gradient
