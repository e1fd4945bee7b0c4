#include "collectives/block_order.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tulle {

bool are_blocks(std::span<const Part> parts) {
  const std::uint64_t dimension = parts.front().stream.dimension();
  const auto is_whole = [=](const Part& part) { return part.stream.range() == Range{0, dimension}; };
  if (std::all_of(parts.begin(), parts.end(), is_whole)) return false;
  std::uint64_t next = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Range range = parts[rank].stream.range();
    const bool is_last = rank + 1 == parts.size();
    if (range.begin != next || (is_last && range.end != dimension)) {
      throw Error(
          ErrorKind::bad_input,
          fmt::format("blocks to gather must cover [0, {}) by rank, one after the other: rank {} gives [{}, {})",
                      dimension, rank, range.begin, range.end));
    }
    next = range.end;
  }
  return true;
}

}  // namespace tulle
