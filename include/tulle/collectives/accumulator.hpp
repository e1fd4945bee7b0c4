// A dense vector that a collective updates in place.
//
// Threads: a view may be copied by any thread. The vector is the collective's until the call is over: its driver, often
// the progress thread, reads and writes it.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/base/value_type.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// A view of a gradient, or of a gradient plus a residual. A collective takes out of it what it delivers; what it does
/// not deliver stays, for the next call. Takes no memory. The vector must outlive the call and be left alone until it
/// ends.
class Accumulator {
 public:
  Accumulator() = default;
  template <class V>
  explicit Accumulator(std::span<V> values) : type_(kValueTypeOf<V>), data_(values.data()), dimension_(values.size()) {}

  /// A vector that is only counted, for simulations larger than memory.
  static Accumulator phantom(ValueType type, std::uint64_t dimension) {
    Accumulator accumulator;
    accumulator.type_ = type;
    accumulator.dimension_ = dimension;
    return accumulator;
  }

  bool is_phantom() const { return data_ == nullptr && dimension_ > 0; }
  ValueType type() const { return type_; }
  std::uint64_t dimension() const { return dimension_; }
  void* data() const { return data_; }
  /// REQUIRES: kValueTypeOf<V> == type().
  template <class V>
  std::span<V> values() const {
    return {static_cast<V*>(data_), dimension_};
  }

 private:
  ValueType type_ = ValueType::f32;
  void* data_ = nullptr;
  std::uint64_t dimension_ = 0;
};

}  // namespace tulle
#pragma GCC visibility pop
