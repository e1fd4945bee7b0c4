// Sparse into dense.
#include "stream/dispatch.hpp"
#include "stream/kernels.hpp"
#include "stream/pairs.hpp"

namespace tulle {

void scatter(const AnyStream& sparse, const Op& op, std::byte* dense, DenseSide side) {
  visit_kernel(sparse, op, [&]<class V, class I>(auto combine) {
    const auto pairs = pairs_of<V, I>(sparse);
    const std::uint64_t begin = sparse.range().begin;
    V* values = reinterpret_cast<V*>(dense);
    for (std::size_t i = 0; i < pairs.size; ++i) {
      V& value = values[pairs.indices[i] - begin];
      value = side == DenseSide::lower ? combine(value, pairs.values[i]) : combine(pairs.values[i], value);
    }
  });
}

}  // namespace tulle
