// The values of a dense input piece by piece, in its compute type, decayed and with the addend added on the way.
#pragma once

#include "select/dense_input.hpp"
#include "stream/kernels.hpp"

namespace tulle {

template <class V>
class TileReader {
 public:
  /// Reads at most `largest` values at a time.
  TileReader(const DenseInput& input, std::size_t largest)
      : input_(input), width_(size_of(input.type)), wide_(is_stored() ? 0 : largest), wide_addend_(wide_.size()) {}

  /// `count` values from position `first` of the range on. Valid until the next call.
  const V* read(std::size_t first, std::size_t count) {
    const std::byte* const values = input_.values + first * width_;
    const std::byte* const addend = input_.addend == nullptr ? nullptr : input_.addend + first * width_;
    std::byte* const residual = input_.residual + first * width_;
    if (is_stored()) {
      if (addend != nullptr) {
        decay(reinterpret_cast<V*>(residual), count);
        add(residual, values, addend, count);
      }
      return reinterpret_cast<const V*>(values);
    }
    widen(values, wide_, count);
    if (addend != nullptr) {
      widen(addend, wide_addend_, count);
      decay(wide_.data(), count);
      add(bytes(wide_), bytes(wide_), bytes(wide_addend_), count);
      convert_values(kValueTypeOf<V>, bytes(wide_), input_.type, residual, count);
      widen(values, wide_, count);  // as the narrow type has rounded it
    }
    return wide_.data();
  }

 private:
  bool is_stored() const { return input_.type == kValueTypeOf<V>; }
  static std::byte* bytes(PoolVector<V>& values) { return reinterpret_cast<std::byte*>(values.data()); }
  static void add(std::byte* result, const std::byte* lower, const std::byte* higher, std::size_t count) {
    combine_dense(kValueTypeOf<V>, Op::sum(), result, lower, higher, count);
  }
  void decay(V* values, std::size_t count) const {
    if (input_.decay == 1) return;
    const auto factor = static_cast<V>(input_.decay);
    for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
  }
  void widen(const std::byte* narrow, PoolVector<V>& wide, std::size_t count) const {
    convert_values(input_.type, narrow, kValueTypeOf<V>, bytes(wide), count);
  }

  const DenseInput& input_;
  std::size_t width_;
  PoolVector<V> wide_;
  PoolVector<V> wide_addend_;
};

}  // namespace tulle
