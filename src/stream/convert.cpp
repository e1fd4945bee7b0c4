// 16-bit floats to f32 and back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "stream/half_arrays.hpp"
#include "stream/kernels.hpp"

namespace tulle {
namespace {

/// f32 to a 16-bit type or back.
constexpr bool converts(ValueType from, ValueType to) {
  const bool are_floats = compute_type(from) == ValueType::f32 && compute_type(to) == ValueType::f32;
  return are_floats && (from == ValueType::f32 || to == ValueType::f32);
}

template <class From, class To>
std::uint64_t convert_array(const From* source, To* destination, std::size_t count) {
  constexpr std::uint16_t kBfloat16Infinity = 0x7f80;
  std::uint64_t overflowed = 0;
  if constexpr (std::is_same_v<From, Half> && std::is_same_v<To, float>) {
    widen_halves(source, destination, count);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Half>) {
    overflowed = narrow_to_halves(source, destination, count);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(source[i]);
      destination[i] = static_cast<To>(value);
      if constexpr (std::is_same_v<To, Bfloat16>) {
        overflowed += (destination[i].bits & 0x7fff) == kBfloat16Infinity && std::isfinite(value);
      }
    }
  }
  return overflowed;
}

}  // namespace

std::uint64_t convert_values(ValueType from, const std::byte* source, ValueType to, std::byte* destination,
                             std::uint64_t count) {
  if (from == to) {
    std::copy_n(source, count * size_of(from), destination);
    return 0;
  }
  return visit_value_type(from, [&]<class From>() {
    return visit_value_type(to, [&]<class To>() -> std::uint64_t {
      if constexpr (!converts(kValueTypeOf<From>, kValueTypeOf<To>))
        __builtin_unreachable();
      else
        return convert_array(reinterpret_cast<const From*>(source), reinterpret_cast<To*>(destination), count);
    });
  });
}

AnyStream convert(const AnyStream& stream, ValueType type, KernelReport* report) {
  if (stream.type() == type) return stream;
  if (!converts(stream.type(), type)) {
    throw Error(ErrorKind::bad_input,
                fmt::format("a stream of {} does not convert to {}", to_string(stream.type()), to_string(type)));
  }
  if (stream.is_phantom()) {
    return AnyStream::phantom(type, stream.dimension(), stream.range(), stream.layout(), stream.nnz());
  }
  Buffer values = Buffer::allocate(stream.nnz() * size_of(type));
  const std::uint64_t overflowed =
      convert_values(stream.type(), stream.values_buffer().data(), type, values.mutable_data(), stream.nnz());
  if (report != nullptr) report->overflowed += overflowed;
  if (stream.is_dense()) return AnyStream::dense(type, stream.dimension(), stream.range(), std::move(values));
  return AnyStream::sparse(type, stream.dimension(), stream.range(), stream.indices_buffer(), std::move(values));
}

}  // namespace tulle
