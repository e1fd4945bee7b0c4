// Reading a bitmap of occupied positions as pairs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "stream/pairs.hpp"

namespace tulle {

/// Writes the pairs (begin + p, values[p]) for every bit p that is set in `words` 64-bit words, in order, and returns
/// how many there are. Values are bits of any type. REQUIRES: `target` has room for kEmitSlack pairs more.
inline constexpr std::size_t kEmitSlack = 64;
std::size_t emit_occupied(const std::uint64_t* occupied, std::size_t words, const std::uint32_t* values,
                          std::uint64_t begin, PairsTarget<std::uint32_t, std::uint32_t> target);
std::size_t emit_occupied(const std::uint64_t* occupied, std::size_t words, const std::uint32_t* values,
                          std::uint64_t begin, PairsTarget<std::uint32_t, std::uint64_t> target);
std::size_t emit_occupied(const std::uint64_t* occupied, std::size_t words, const std::uint64_t* values,
                          std::uint64_t begin, PairsTarget<std::uint64_t, std::uint32_t> target);
std::size_t emit_occupied(const std::uint64_t* occupied, std::size_t words, const std::uint64_t* values,
                          std::uint64_t begin, PairsTarget<std::uint64_t, std::uint64_t> target);

}  // namespace tulle
