#include "measure/coding_cost.hpp"

#include <algorithm>
#include <iterator>

#include "gradient/policy.hpp"

namespace tulle::measure {
namespace {

// Kernels of an encoding: one looks for the scale, one codes.
constexpr double kEncodingLaunches = 2;

// Of memcpy's speed, by docs/codecs.md. memcpy there takes γ_dense a value, so that its inverse is a number of passes.
struct CodingSpeed {
  ValueCoding coding;
  double encode_percent, decode_percent;
};
constexpr CodingSpeed kCodingSpeeds[] = {
    {ValueCoding::f16, 163, 158},
    {ValueCoding::bf16, 91, 159},
    {ValueCoding::int8, 81, 179},
    {ValueCoding::qsgd, 46, 209},
    {ValueCoding::three_value_stochastic, 38, 181},
    {ValueCoding::three_lc, 66, 109},
    {ValueCoding::one_bit_mqe, 49, 64},
};

// Those that were not measured take a pass.
CodingSpeed speed_of(ValueCoding coding) {
  const auto* const found = std::ranges::find(kCodingSpeeds, coding, &CodingSpeed::coding);
  return found != std::end(kCodingSpeeds) ? *found : CodingSpeed{coding, 100, 100};
}

}  // namespace

bool CodingCost::selects(const gradient::Parameter& parameter) const {
  return recipe_.selector != "none" && !gradient::travels_whole(recipe_, parameter);
}

double CodingCost::values(const gradient::Parameter& parameter) const {
  return static_cast<double>(parameter.size) * (selects(parameter) ? recipe_.density : 1);
}

// As exchanges are charged: an index coding's γ is of an encoding and a decoding together.
double CodingCost::index_seconds(const gradient::Parameter& parameter) const {
  return machine_.gamma_bitmap_seconds / 2 * values(parameter);
}

double CodingCost::encode_seconds(const gradient::Parameter& parameter) const {
  const bool is_raw = recipe_.values.coding == ValueCoding::raw || gradient::travels_whole(recipe_, parameter);
  const double passes = is_raw ? 1 : 100 / speed_of(recipe_.values.coding).encode_percent;
  double seconds =
      (is_raw ? 1 : kEncodingLaunches) * launch_seconds_ + passes * machine_.gamma_dense_seconds * values(parameter);
  if (!selects(parameter)) return seconds;
  seconds += kSelectionLaunches * launch_seconds_ + machine_.gamma_select_seconds * static_cast<double>(parameter.size);
  return seconds + index_seconds(parameter);
}

// Raw values are used where they have arrived.
double CodingCost::decode_seconds(const gradient::Parameter& parameter) const {
  const double indices = selects(parameter) ? index_seconds(parameter) : 0;
  if (recipe_.values.coding == ValueCoding::raw || gradient::travels_whole(recipe_, parameter)) return indices;
  const double passes = 100 / speed_of(recipe_.values.coding).decode_percent;
  return launch_seconds_ + passes * machine_.gamma_dense_seconds * values(parameter) + indices;
}

double CodingCost::visit_seconds(const gradient::Parameter& parameter) const {
  const double each = selects(parameter) ? machine_.gamma_sparse_seconds : machine_.gamma_dense_seconds;
  return launch_seconds_ + each * values(parameter);
}

}  // namespace tulle::measure
