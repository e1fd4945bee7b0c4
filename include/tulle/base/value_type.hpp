// The value types a stream can hold, as an enumeration and as a list to instantiate templates from.
//
// Threads: pure functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tulle/base/half.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Numbers are part of the wire format: never renumber.
enum class ValueType : std::uint8_t { f32 = 1, f64 = 2, f16 = 3, bf16 = 4, i32 = 5, i64 = 6 };

/// X(enumerator, C++ type) for every value type.
#define TULLE_FOR_EACH_VALUE_TYPE(X) \
  X(f32, float)                      \
  X(f64, double)                     \
  X(f16, ::tulle::Half)              \
  X(bf16, ::tulle::Bfloat16)         \
  X(i32, std::int32_t)               \
  X(i64, std::int64_t)

/// X(enumerator, C++ type) for the types that sums are computed in; f16 and bf16 are computed in f32.
#define TULLE_FOR_EACH_COMPUTE_TYPE(X) \
  X(f32, float)                        \
  X(f64, double)                       \
  X(i32, std::int32_t)                 \
  X(i64, std::int64_t)

inline constexpr ValueType kAllValueTypes[] = {ValueType::f32,  ValueType::f64, ValueType::f16,
                                               ValueType::bf16, ValueType::i32, ValueType::i64};

template <class V>
inline constexpr ValueType kValueTypeOf = ValueType{};
#define TULLE_VALUE_TYPE_OF(name, type) \
  template <>                           \
  inline constexpr ValueType kValueTypeOf<type> = ValueType::name;
TULLE_FOR_EACH_VALUE_TYPE(TULLE_VALUE_TYPE_OF)
#undef TULLE_VALUE_TYPE_OF

constexpr std::size_t size_of(ValueType type) {
  switch (type) {
    case ValueType::f64:
    case ValueType::i64: return 8;
    case ValueType::f16:
    case ValueType::bf16: return 2;
    default: return 4;
  }
}

constexpr bool is_integer(ValueType type) { return type == ValueType::i32 || type == ValueType::i64; }
constexpr bool is_valid(ValueType type) { return type >= ValueType::f32 && type <= ValueType::i64; }

/// The type sums of `type` are computed in, and the type it travels in between hops.
constexpr ValueType compute_type(ValueType type) {
  return type == ValueType::f16 || type == ValueType::bf16 ? ValueType::f32 : type;
}

std::string_view to_string(ValueType type);
/// Throws bad_input that lists the allowed names.
ValueType value_type_from(std::string_view name);

/// Calls `function.template operator()<V>()` with the C++ type that `type` names.
template <class Function>
decltype(auto) visit_value_type(ValueType type, Function&& function) {
  switch (type) {
#define TULLE_CASE(name, cpp_type) \
  case ValueType::name: return function.template operator()<cpp_type>();
    TULLE_FOR_EACH_VALUE_TYPE(TULLE_CASE)
  }
  __builtin_unreachable();
}

/// The same for a compute type. REQUIRES: type == compute_type(type).
template <class Function>
decltype(auto) visit_compute_type(ValueType type, Function&& function) {
  switch (type) {
    TULLE_FOR_EACH_COMPUTE_TYPE(TULLE_CASE)
    default: break;
  }
#undef TULLE_CASE
  __builtin_unreachable();
}

}  // namespace tulle
#pragma GCC visibility pop
