#include "select/non_finite.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "select/key.hpp"
#include "select/split.hpp"

namespace tulle {
namespace {

[[noreturn]] void refuse(const DenseInput& input, const AnyStream& gathered) {
  visit_compute_type(gathered.type(), [&]<class V>() {
    const std::span<const V> values = gathered.values_buffer().as<V>();
    const auto first = std::ranges::find_if(values, [](V value) { return magnitude_key(value) >= kFirstNonFinite<V>; });
    const std::uint64_t index = gathered.index_at(static_cast<std::uint64_t>(first - values.begin()));
    throw Error(ErrorKind::bad_input,
                fmt::format("the value at index {} is {}; selecting from N = {} needs finite values", index, *first,
                            input.dimension));
  });
  __builtin_unreachable();
}

}  // namespace

AnyStream admit_non_finite(const DenseInput& input, AnyStream gathered, NonFinite policy) {
  const Key low = first_non_finite(gathered.type());
  if (policy == NonFinite::largest || count_at_least(gathered, Side::both, low) == 0) return gathered;
  if (policy == NonFinite::error) refuse(input, gathered);
  return split_at_key(gathered, Side::both, low, gathered.nnz()).rest;
}

}  // namespace tulle
