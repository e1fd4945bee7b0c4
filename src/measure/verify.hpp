// The serial sum of synthetic inputs, and whether a result equals it.
#pragma once

#include <cstdint>
#include <optional>

#include "stream/synthetic.hpp"
#include "tulle/stream/op.hpp"
#include "tulle/stream/stream.hpp"

namespace tulle::measure {

/// The inputs of ranks reduced one after the other. Holds two of them at a time.
class SerialReduction {
 public:
  SerialReduction(const SyntheticSpec& spec, const Op& op) : spec_(spec), op_(op) {}
  void add(int rank);
  /// REQUIRES: a rank was added.
  AnyStream result() const;

 private:
  SyntheticSpec spec_;
  Op op_;
  std::optional<AnyStream> sum_;
};

/// For sums whose values were coded: about as long as `expected` in its direction. REQUIRES: equal shapes.
bool points_the_same_way(const AnyStream& got, const AnyStream& expected);

/// True where both mean the same vector, whatever their layouts. Products of floats may differ by rounding; other
/// results are exact, because synthetic values are small integers.
bool means_the_same(const AnyStream& a, const AnyStream& b, const Op& op, int ranks);

/// A checksum of layout, indices and value bits.
std::uint32_t bits_of(const AnyStream& stream);

}  // namespace tulle::measure
