// Arrays of f16 to f32 and back, by the CPU's instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tulle/base/half.hpp"

namespace tulle {

void widen_halves(const Half* source, float* destination, std::size_t count);
/// Returns how many finite values became infinite.
std::uint64_t narrow_to_halves(const float* source, Half* destination, std::size_t count);

}  // namespace tulle
