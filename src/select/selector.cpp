// The façade: checks options, describes the input, runs a row.
#include "tulle/select/selector.hpp"

#include <fmt/format.h>

#include <cassert>

#include "base/parallel.hpp"
#include "select/pack_selected.hpp"
#include "select/selectors.hpp"
#include "select/share.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

[[noreturn]] void refuse(const Selector& selector, const std::string& what) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", selector.name, what));
}

void check(const Selector& selector, const SelectOptions& options) {
  if (selector.needs == SelectorNeeds::k && !options.k && !options.density) refuse(selector, "needs k or density");
  if (selector.needs == SelectorNeeds::threshold && !options.threshold) refuse(selector, "needs threshold");
  if (options.density && !(*options.density >= 0 && *options.density <= 1)) {
    refuse(selector, fmt::format("density is {}, expected 0 to 1", *options.density));
  }
  if (options.threshold && !(*options.threshold >= 0)) {
    refuse(selector, fmt::format("threshold is {}, expected 0 or more", *options.threshold));
  }
  if (options.sign != Sign::any && selector.signs != SelectorSigns::asked) refuse(selector, "selects by no sign");
  if (options.bucket == 0) refuse(selector, "bucket is 0, expected 1 or more");
  if (!(options.decay >= 0 && options.decay <= 1)) {
    refuse(selector, fmt::format("decay is {}, expected 0 to 1", options.decay));
  }
  if (options.threads < 0) refuse(selector, fmt::format("threads is {}, expected 0 or more", options.threads));
}

Selection run(std::string_view name, const DenseInput& input, const SelectOptions& options) {
  const Selector& selector = selector_from(name);
  check(selector, options);
  if (input.decay != 1 && is_integer(input.type)) refuse(selector, "integers do not decay");
  return selector.run(input, options);
}

template <class V>
DenseInput input_of(std::span<const V> values, const SelectOptions& options) {
  return {.type = kValueTypeOf<V>,
          .dimension = values.size(),
          .range = {0, values.size()},
          .values = reinterpret_cast<const std::byte*>(values.data()),
          .threads = options.threads};
}

template <class V>
DenseInput residual_of(std::span<V> residual, const SelectOptions& options) {
  DenseInput input = input_of<V>(residual, options);
  input.residual = reinterpret_cast<std::byte*>(residual.data());
  return input;
}

}  // namespace

std::uint64_t wanted_k(const SelectOptions& options, std::uint64_t count) {
  if (options.k) return std::min(*options.k, count);
  return values_of_share(*options.density, count);
}

Side side_of(Sign sign) {
  switch (sign) {
    case Sign::any: return Side::both;
    case Sign::positive: return Side::positive;
    case Sign::negative: return Side::negative;
  }
  return Side::both;
}

CandidateSpec candidates_of(const DenseInput& input, const SelectOptions& options, Side side) {
  return {.side = side,
          .k = wanted_k(options, input.range.size()),
          .non_finite = options.non_finite,
          .seed = options.seed,
          .step = options.step};
}

Selection taken(const DenseInput& input, const AnyStream& selected, double threshold, std::uint64_t passed) {
  if (input.residual != nullptr) clear_at(input, selected);
  return {convert(selected, input.type), threshold, passed};
}

template <class V>
Selection select(std::string_view selector, std::span<const V> values, const SelectOptions& options) {
  return run(selector, input_of(values, options), options);
}

template <class V>
Selection select_in_place(std::string_view selector, std::span<V> residual, const SelectOptions& options) {
  return run(selector, residual_of(residual, options), options);
}

template <class V>
Selection accumulate_and_select(std::string_view selector, std::span<V> residual, std::span<const V> gradient,
                                const SelectOptions& options) {
  assert(residual.size() == gradient.size());
  DenseInput input = residual_of(residual, options);
  input.addend = reinterpret_cast<const std::byte*>(gradient.data());
  input.decay = options.decay;
  return run(selector, input, options);
}

#define TULLE_INSTANTIATE(name, V)                                                          \
  template Selection select(std::string_view, std::span<const V>, const SelectOptions&);    \
  template Selection select_in_place(std::string_view, std::span<V>, const SelectOptions&); \
  template Selection accumulate_and_select(std::string_view, std::span<V>, std::span<const V>, const SelectOptions&);
TULLE_FOR_EACH_VALUE_TYPE(TULLE_INSTANTIATE)
#undef TULLE_INSTANTIATE

}  // namespace tulle
