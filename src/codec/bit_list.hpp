// Positions of the set bits of a bitmap, 32 bits each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle {

/// What a kernel did: bytes of the bitmap that it read, and positions that it wrote.
struct BitList {
  std::size_t bytes = 0;
  std::size_t positions = 0;
};

/// Writes `first` + the position of each set bit, in order. May end early: the caller does the rest.
/// Writes nothing beyond `count`. REQUIRES: the bitmap has at most `count` set bits, and positions fit 32 bits.
BitList list_bits(std::span<const std::byte> bitmap, std::uint32_t first, std::uint32_t* positions, std::size_t count);

}  // namespace tulle
