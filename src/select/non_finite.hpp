// NaN and infinity. Their keys are the largest, so any pass that gathers large keys has found them.
#pragma once

#include "select/dense_input.hpp"
#include "tulle/select/selector.hpp"

namespace tulle {

/// What `policy` makes of `gathered`: itself, itself without them, or bad_input naming the first.
AnyStream admit_non_finite(const DenseInput& input, AnyStream gathered, NonFinite policy);

}  // namespace tulle
