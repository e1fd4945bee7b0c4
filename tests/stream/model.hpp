// What a stream means, as a std::map, and the reductions of such maps: obvious, slow, and independent of the kernels.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "base/simd.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::test {

template <class V>
using Model = std::map<std::uint64_t, V>;

template <class V>
constexpr bool kIsSixteenBit = sizeof(V) == 2;

/// The type sums of V are computed in.
template <class V>
using Computed = std::conditional_t<kIsSixteenBit<V>, float, V>;

/// Equal bits, or two NaNs: which payload a sum of NaNs has is up to the processor.
template <class V>
bool same_value(V a, V b) {
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class V>
Stream<V> stream_of(std::uint64_t dimension, const Model<V>& model) {
  std::vector<std::uint64_t> indices;
  std::vector<V> values;
  for (const auto& [index, value] : model) {
    indices.push_back(index);
    values.push_back(value);
  }
  return Stream<V>::from_sorted(dimension, std::span<const std::uint64_t>(indices), std::span<const V>(values));
}

template <class V>
Model<V> model_of(const AnyStream& stream) {
  const Stream<V> typed(stream);
  Model<V> model;
  for (std::uint64_t i = 0; i < typed.nnz(); ++i) {
    model[stream.is_dense() ? stream.range().begin + i : stream.index_at(i)] = typed.values()[i];
  }
  return model;
}

template <class V>
bool same_model(const Model<V>& a, const Model<V>& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && same_value(x.second, y.second); });
}

template <class V>
bool same_values(const std::vector<V>& a, const std::vector<V>& b) {
  return std::ranges::equal(a, b, same_value<V>);
}

/// lower ∘ higher, written out once more.
template <class V>
V combined(OpCode code, V lower, V higher) {
  if constexpr (std::is_integral_v<V>) {
    using U = std::make_unsigned_t<V>;
    switch (code) {
      case OpCode::sum: return static_cast<V>(static_cast<U>(lower) + static_cast<U>(higher));
      case OpCode::prod: return static_cast<V>(static_cast<U>(lower) * static_cast<U>(higher));
      case OpCode::bit_and: return lower & higher;
      case OpCode::bit_or: return lower | higher;
      case OpCode::bit_xor: return lower ^ higher;
      default: break;
    }
  }
  switch (code) {
    case OpCode::prod: return lower * higher;
    case OpCode::min: return higher < lower ? higher : lower;
    case OpCode::max: return lower < higher ? higher : lower;
    case OpCode::user: return lower;  // first_op()
    default: return lower + higher;
  }
}

/// A user op that does not commute: the first stream that holds an index decides.
template <class V>
Op first_op() {
  return Op::user<V>("first", V{0}, [](V lower, V) { return lower; });
}

/// The left fold over the models that hold an index, rounded once at the end.
template <class V>
Model<V> folded(const std::vector<Model<V>>& models, OpCode code) {
  Model<Computed<V>> wide;
  for (const Model<V>& model : models) {
    for (const auto& [index, value] : model) {
      const auto computed = static_cast<Computed<V>>(value);
      const auto [place, is_first] = wide.try_emplace(index, computed);
      if (!is_first) place->second = combined(code, place->second, computed);
    }
  }
  Model<V> result;
  for (const auto& [index, value] : wide) result[index] = static_cast<V>(value);
  return result;
}

/// The named operations defined on V.
template <class V>
std::vector<Op> ops_on() {
  std::vector<Op> ops{Op::sum(), Op::prod(), Op::min(), Op::max()};
  if (std::is_integral_v<V>) ops.insert(ops.end(), {Op::bit_and(), Op::bit_or(), Op::bit_xor()});
  return ops;
}

/// Values at which arithmetic is peculiar, and ordinary ones whose sums depend on the order.
template <class V>
std::vector<V> peculiar_values() {
  using Limits = std::numeric_limits<Computed<V>>;
  std::vector<V> values;
  const auto add = [&](auto value) { values.push_back(static_cast<V>(static_cast<Computed<V>>(value))); };
  for (const int value : {0, 1, -1, 2, 7, -300}) add(value);
  if constexpr (std::is_integral_v<V>) {
    for (const V value : {Limits::max(), Limits::min(), Limits::max() / 3}) add(value);
  } else {
    for (const double value : {-0.0, 0.1, -0.3, 1e-3, 1.0 / 3, 1e4}) add(value);
    for (const auto value : {Limits::denorm_min(), -Limits::denorm_min(), Limits::infinity()}) add(value);
  }
  return values;
}

template <class V>
rc::Gen<Model<V>> arbitrary_model(std::uint64_t begin, std::uint64_t end) {
  return rc::gen::container<Model<V>>(rc::gen::inRange(begin, end), rc::gen::elementOf(peculiar_values<V>()));
}

/// The message of the tulle::Error of `kind` that `function` throws.
template <class Function>
std::string message_of(ErrorKind kind, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

/// Calls `function` once for each instruction set that this CPU has, with the kernels restricted to it.
template <class Function>
void for_each_target(Function&& function) {
  apply_simd_environment();
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    function();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

using ValueTypes = ::testing::Types<float, double, Half, Bfloat16, std::int32_t, std::int64_t>;
using ComputeTypes = ::testing::Types<float, double, std::int32_t, std::int64_t>;

}  // namespace tulle::test
