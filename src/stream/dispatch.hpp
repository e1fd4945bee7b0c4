// From run-time types and operations to compile-time ones, once per array.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle {

template <class V>
V scalar_from(const ScalarBytes& bytes) {
  V value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Calls `calculate` on unsigned integers where V is one, so that overflow wraps and is defined.
template <class V, class Calculate>
V wrapping(V lower, V higher, Calculate calculate) {
  if constexpr (std::is_integral_v<V>) {
    using U = std::make_unsigned_t<V>;
    return static_cast<V>(calculate(static_cast<U>(lower), static_cast<U>(higher)));
  } else {
    return calculate(lower, higher);
  }
}

// Operations as function objects. kSpeculative: may be called on values that do not belong together, its result then
// thrown away, so that kernels need not branch.
template <class V>
struct CombineSum {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const {
    return wrapping(lower, higher, [](auto a, auto b) { return a + b; });
  }
};
template <class V>
struct CombineProd {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const {
    return wrapping(lower, higher, [](auto a, auto b) { return a * b; });
  }
};
template <class V>
bool is_nan(V value) {
  if constexpr (std::is_floating_point_v<V>) return value != value;
  return false;
}

// NaN wins, so that the answer does not depend on the order of the operands, which is another in each row, nor on
// whether an absent value meets them as the neutral element. Of equal operands (-0.0 and 0.0) the lower one wins.
template <class V>
struct CombineMin {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const { return (higher < lower) | is_nan(higher) ? higher : lower; }
};
template <class V>
struct CombineMax {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const { return (lower < higher) | is_nan(higher) ? higher : lower; }
};
template <class V>
struct CombineBitAnd {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const { return lower & higher; }
};
template <class V>
struct CombineBitOr {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const { return lower | higher; }
};
template <class V>
struct CombineBitXor {
  static constexpr bool kSpeculative = true;
  V operator()(V lower, V higher) const { return lower ^ higher; }
};
template <class V>
struct CombineUser {
  static constexpr bool kSpeculative = false;
  const UserOp* op;
  V operator()(V lower, V higher) const {
    V result;
    op->combine(&result, &lower, &higher, 1);
    return result;
  }
};

/// Calls `function(combine)` with the function object of `op` on V. REQUIRES: op is defined on V.
template <class V, class Function>
decltype(auto) visit_op(const Op& op, Function&& function) {
  if constexpr (std::is_integral_v<V>) {
    switch (op.code()) {
      case OpCode::bit_and: return function(CombineBitAnd<V>{});
      case OpCode::bit_or: return function(CombineBitOr<V>{});
      case OpCode::bit_xor: return function(CombineBitXor<V>{});
      default: break;
    }
  }
  switch (op.code()) {
    case OpCode::prod: return function(CombineProd<V>{});
    case OpCode::min: return function(CombineMin<V>{});
    case OpCode::max: return function(CombineMax<V>{});
    case OpCode::user: return function(CombineUser<V>{op.user_op()});
    default: return function(CombineSum<V>{});
  }
}

/// Calls `function.template operator()<I>()` with the index type of streams of `dimension`.
template <class Function>
decltype(auto) visit_index_type(std::uint64_t dimension, Function&& function) {
  if (index_bytes(dimension) == sizeof(std::uint32_t)) return function.template operator()<std::uint32_t>();
  return function.template operator()<std::uint64_t>();
}

/// Calls `function.template operator()<Bits>()` with the unsigned integer as wide as `type`, for work that only moves
/// values.
template <class Function>
decltype(auto) visit_bits(ValueType type, Function&& function) {
  switch (size_of(type)) {
    case 2: return function.template operator()<std::uint16_t>();
    case 4: return function.template operator()<std::uint32_t>();
    default: return function.template operator()<std::uint64_t>();
  }
}

/// Calls `function.template operator()<V, I>(combine)` with the types of `stream` and the function object of `op`.
/// REQUIRES: the stream holds a compute type on which op is defined.
template <class Function>
decltype(auto) visit_kernel(const AnyStream& stream, const Op& op, Function&& function) {
  return visit_compute_type(stream.type(), [&]<class V>() {
    return visit_index_type(stream.dimension(), [&]<class I>() {
      return visit_op<V>(op, [&](auto combine) { return function.template operator()<V, I>(combine); });
    });
  });
}

}  // namespace tulle
