// f32 rounded to 16-bit types. What is finite stays so: it becomes at most the largest value of the type.
#pragma once

#include <cstddef>

#include "tulle/base/half.hpp"

namespace tulle {

void narrow(const float* values, Half* halves, std::size_t count);
void narrow(const float* values, Bfloat16* narrow, std::size_t count);

}  // namespace tulle
