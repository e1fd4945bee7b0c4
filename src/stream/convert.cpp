// 16-bit floats to f32 and back.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "stream/kernels.hpp"

namespace tulle {
namespace {

bool is_float(ValueType type) { return compute_type(type) == ValueType::f32; }

template <class From, class To>
std::uint64_t convert_array(const From* source, To* destination, std::uint64_t count) {
  std::uint64_t overflowed = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(source[i]);
    destination[i] = static_cast<To>(value);
    if constexpr (sizeof(To) == 2) overflowed += std::isfinite(value) && std::isinf(static_cast<float>(destination[i]));
  }
  return overflowed;
}

/// Calls `function.template operator()<V>()` for f32, f16 and bf16.
template <class Function>
decltype(auto) visit_float(ValueType type, Function&& function) {
  switch (type) {
    case ValueType::f16: return function.template operator()<Half>();
    case ValueType::bf16: return function.template operator()<Bfloat16>();
    default: return function.template operator()<float>();
  }
}

}  // namespace

std::uint64_t convert_values(ValueType from, const std::byte* source, ValueType to, std::byte* destination,
                             std::uint64_t count) {
  if (from == to) {
    std::copy_n(source, count * size_of(from), destination);
    return 0;
  }
  return visit_float(from, [&]<class From>() {
    return visit_float(to, [&]<class To>() {
      return convert_array(reinterpret_cast<const From*>(source), reinterpret_cast<To*>(destination), count);
    });
  });
}

AnyStream convert(const AnyStream& stream, ValueType type, KernelReport* report) {
  if (stream.type() == type) return stream;
  if (!is_float(stream.type()) || !is_float(type)) {
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
