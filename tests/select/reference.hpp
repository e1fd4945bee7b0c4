// What selectors should give, by sorting: obvious, slow, and independent of the kernels.
#pragma once

#include "stream/model.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/select/top_k.hpp"

namespace tulle::test {

/// The magnitude in a type that holds that of every value exactly.
template <class V>
long double magnitude(V value) {
  const long double wide = static_cast<Computed<V>>(value);
  return wide < 0 ? -wide : wide;
}

/// Indices of `model`, the largest magnitudes first, of equal ones the lower index.
template <class V>
std::vector<std::uint64_t> by_magnitude(const Model<V>& model) {
  std::vector<std::pair<long double, std::uint64_t>> keyed;
  for (const auto& [index, value] : model) keyed.emplace_back(-magnitude(value), index);
  std::ranges::sort(keyed);
  std::vector<std::uint64_t> indices;
  for (const auto& [key, index] : keyed) indices.push_back(index);
  return indices;
}

template <class V>
Model<V> reference_top_k(const Model<V>& model, std::uint64_t k) {
  std::vector<std::uint64_t> indices = by_magnitude(model);
  indices.resize(std::min<std::uint64_t>(k, indices.size()));
  Model<V> top;
  for (const std::uint64_t index : indices) top[index] = model.at(index);
  return top;
}

template <class V>
Model<V> without(const Model<V>& model, const Model<V>& taken) {
  Model<V> rest = model;
  for (const auto& [index, value] : taken) rest.erase(index);
  return rest;
}

template <class V>
Model<V> non_zeros(std::span<const V> values, Range range) {
  Model<V> model;
  for (std::uint64_t i = range.begin; i < range.end; ++i) {
    if (magnitude(values[i]) != 0) model[i] = values[i];
  }
  return model;
}
template <class V>
Model<V> non_zeros(const std::vector<V>& values) {
  return non_zeros(std::span<const V>(values), {0, values.size()});
}

/// Finite values: many different ones, with ties, zeros of both signs and denormals among them.
template <class V>
std::vector<V> mixed_values(std::size_t count, std::uint64_t seed) {
  Philox random(seed);
  std::vector<V> peculiar = peculiar_values<V>();
  std::erase_if(peculiar, [](V value) { return magnitude(value) > 1e30L && !std::is_integral_v<V>; });
  std::vector<V> values(count);
  for (V& value : values) {
    const double spread = (random.uniform() + random.uniform() + random.uniform() - 1.5) * 1000;
    value = random.below(4) == 0 ? peculiar[random.below(peculiar.size())] : static_cast<V>(static_cast<float>(spread));
  }
  return values;
}

}  // namespace tulle::test
