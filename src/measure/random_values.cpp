#include "measure/random_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/parallel.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::measure {
namespace {

constexpr Distribution kDistributions[] = {Distribution::gaussian, Distribution::heavy};
constexpr std::uint64_t kPart = std::uint64_t{1} << 16;

// By Box and Muller, from the two halves of one random number.
double normal(std::uint64_t bits) {
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(bits >> 32) + 1) * 0x1p-32));
  return radius * std::cos(2 * std::numbers::pi * static_cast<double>(bits & 0xffffffffu) * 0x1p-32);
}

}  // namespace

std::string_view to_string(Distribution distribution) {
  return distribution == Distribution::gaussian ? "gaussian" : "heavy";
}

Distribution distribution_from(std::string_view name) {
  const auto* const found = std::ranges::find(kDistributions, name, [](Distribution d) { return to_string(d); });
  if (found != std::end(kDistributions)) return *found;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is neither gaussian nor heavy", name));
}

std::vector<float> random_values(std::uint64_t count, Distribution distribution, std::uint64_t seed) {
  std::vector<float> values(count);
  const Philox random(seed);
  parallel_for(0, (count + kPart - 1) / kPart, [&](std::size_t part) {
    for (std::uint64_t i = part * kPart; i < std::min((part + 1) * kPart, count); ++i) {
      const double value = normal(random.at(i));
      values[i] = static_cast<float>(distribution == Distribution::heavy ? value * value * value : value);
    }
  });
  return values;
}

std::vector<float> random_gradient(std::span<const float> common, std::uint64_t seed) {
  std::vector<float> values = random_values(common.size(), Distribution::gaussian, seed);
  std::ranges::transform(values, common, values.begin(), [](float own, float shared) {
    const float value = (own + shared) * 0.70710678f;
    return value * value * value;
  });
  return values;
}

}  // namespace tulle::measure
