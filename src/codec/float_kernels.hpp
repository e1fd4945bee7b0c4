// Passes over f32 arrays that give one number. Sums are taken in f64 over sixteen interleaved parts, whatever the width
// of the processor's vectors, so their bits are the same on every target; squares of f32 are exact in f64, fused or
// not.
#pragma once

#include <span>

#include "tulle/codec/value_coding.hpp"

namespace tulle {

/// The norm, at most the largest f32. Infinite or NaN exactly where a value is.
float scale_of(ScaleNorm norm, std::span<const float> values);

struct SumsBySign {
  double negative = 0;
  double positive = 0;
};
/// REQUIRES: all values are finite.
SumsBySign sums_by_sign(std::span<const float> values);

}  // namespace tulle
