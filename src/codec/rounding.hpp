// Where stochastic rounding gets its numbers: Philox4x32-10 counters, sixteen bits a value.
//
// A block of 128 bits serves eight values. Sixty-four values take blocks 8·group to 8·group + 7: value j of the group
// takes half (j / 16) % 2 of word 2·(j / 32) + j % 2 of block (j % 16) / 2. That order is what a vector of any width
// can make without moving numbers between lanes.
#pragma once

#include <array>
#include <cstdint>

#include "tulle/base/philox.hpp"
#include "tulle/codec/value_coding.hpp"

namespace tulle {

inline constexpr std::size_t kRoundingGroup = 64;

/// The generator of one call: key and the upper half of the counter. The lower half is the block's number.
struct RoundingStream {
  std::array<std::uint32_t, 2> key{};
  std::array<std::uint32_t, 2> nonce{};
};

/// Every field of the key changes the whole stream.
constexpr RoundingStream rounding_stream(const RoundingKey& key) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  const auto call =
      philox({low(key.rank), high(key.rank), low(key.step), high(key.step)}, {low(key.seed), high(key.seed)});
  const auto piece = philox({low(key.position), high(key.position), call[2], call[3]}, {call[0], call[1]});
  return {{piece[0], piece[1]}, {piece[2], piece[3]}};
}

}  // namespace tulle
