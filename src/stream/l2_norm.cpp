#include <array>
#include <cmath>
#include <type_traits>

#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

// Lanes that do not depend on one another, in any processor's order: compilers make vectors of them.
constexpr std::size_t kLanes = 8;

template <class V>
double sum_of_squares(std::span<const V> values) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < values.size(); ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double l2_norm(const AnyStream& stream) {
  if (stream.nnz() == 0 || stream.is_phantom()) return 0;
  const AnyStream computed = convert(stream, compute_type(stream.type()));
  return visit_compute_type(computed.type(),
                            [&]<class V>() { return std::sqrt(sum_of_squares<V>(computed.values_buffer().as<V>())); });
}

}  // namespace tulle
