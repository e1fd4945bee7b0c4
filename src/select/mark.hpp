// The kernel under every selector: which values of an array have a key of at least `low`, as a bitmap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "select/key.hpp"

namespace tulle {

/// Sets bit i % 64 of words[i / 64] where key_of(values[i], side) >= low, and clears the others.
/// REQUIRES: count is a multiple of 64; low >= 1.
void mark(const float* values, std::size_t count, Side side, Key low, std::uint64_t* words);
void mark(const double* values, std::size_t count, Side side, Key low, std::uint64_t* words);
void mark(const std::int32_t* values, std::size_t count, Side side, Key low, std::uint64_t* words);
void mark(const std::int64_t* values, std::size_t count, Side side, Key low, std::uint64_t* words);

}  // namespace tulle
