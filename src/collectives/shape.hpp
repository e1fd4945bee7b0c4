// What a call reduces, without the data.
#pragma once

#include "tulle/collectives/registry.hpp"

namespace tulle {

/// What all ranks agree on.
struct Shape {
  Takes takes = Takes::stream;
  ValueType type = ValueType::f32;
  std::uint64_t dimension = 0;
};

inline Shape shape_of(const AnyStream& stream) { return {Takes::stream, stream.type(), stream.dimension()}; }
inline Shape shape_of(const Accumulator& accumulator) {
  return {Takes::accumulator, accumulator.type(), accumulator.dimension()};
}

inline bool borrows(const AnyStream& stream) {
  return stream.values_buffer().is_borrowed() || stream.indices_buffer().is_borrowed();
}

inline bool codes_values(const CallOptions& options) { return options.value_coding.coding != ValueCoding::raw; }

}  // namespace tulle
