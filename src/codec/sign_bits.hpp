// Signs of values as bits, the first in the lowest bit, and values from such bits.
#pragma once

#include <cstddef>
#include <span>

namespace tulle {

/// Sets a bit for each negative value; the rest of the last byte is zero. Returns how many are. −0 is not.
/// REQUIRES: room for a byte for each eight values begun.
std::size_t pack_negatives(std::span<const float> values, std::byte* bits);

/// `if_set` or `if_clear` for each bit. REQUIRES: as many bits as values.
void select_by_bits(const std::byte* bits, float if_clear, float if_set, std::span<float> values);

}  // namespace tulle
