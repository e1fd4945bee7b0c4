// Dense vectors to measure on.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tulle::measure {

enum class Distribution {
  gaussian,  ///< mean 0, variance 1
  heavy,     ///< the cube of that: most values near zero, a few very large, as gradients are
};
std::string_view to_string(Distribution distribution);
/// Throws bad_input that lists the allowed names.
Distribution distribution_from(std::string_view name);

/// The same for any number of threads.
std::vector<float> random_values(std::uint64_t count, Distribution distribution, std::uint64_t seed);

/// A rank's gradient in a training step: heavy-tailed, and of every value's variance half is what all ranks have in
/// common. `common` are Gaussian values, the same on all ranks.
std::vector<float> random_gradient(std::span<const float> common, std::uint64_t seed);

}  // namespace tulle::measure
