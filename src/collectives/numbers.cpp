#include "collectives/numbers.hpp"

#include <fmt/format.h>

#include "collectives/gather.hpp"

namespace tulle {

PoolVector<std::int64_t> numbers_of(const Part& part, int from, std::size_t count) {
  const AnyStream& stream = part.stream;
  const bool is_whole = stream.is_dense() && stream.type() == ValueType::i64 && !stream.is_phantom();
  if (!is_whole || stream.range() != Range{0, count}) {
    reject_message(from, fmt::format("it should hold {} numbers and holds something else", count));
  }
  const std::span<const std::int64_t> numbers = stream.values_buffer().as<std::int64_t>();
  return {numbers.begin(), numbers.end()};
}

std::uint64_t count_of(std::int64_t number, int from, std::uint64_t most, std::string_view what) {
  if (number < 0 || static_cast<std::uint64_t>(number) > most) {
    reject_message(from, fmt::format("{} is {}, expected 0 to {}", what, number, most));
  }
  return static_cast<std::uint64_t>(number);
}

void require_cuts(std::span<const std::int64_t> cuts, int from, std::uint64_t dimension) {
  std::uint64_t before = 0;
  for (const std::int64_t number : cuts) {
    const std::uint64_t cut = count_of(number, from, dimension, "a cut between regions");
    if (cut < before) reject_message(from, fmt::format("a cut between regions is {} and follows {}", cut, before));
    before = cut;
  }
}

// Integers travel as a dense stream of their own.
Task<PoolVector<PoolVector<std::int64_t>>> share_numbers(Operation& operation, PoolVector<std::int64_t> mine,
                                                         Step first_step) {
  const Stream<std::int64_t> stream = Stream<std::int64_t>::dense(mine);
  Exchange exchange(operation, stream, {});
  const PoolVector<Part> parts = co_await gather_parts(exchange, Exchange::contribution(stream), first_step);
  PoolVector<PoolVector<std::int64_t>> all;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    all.push_back(numbers_of(parts[rank], static_cast<int>(rank), mine.size()));
  }
  co_return all;
}

}  // namespace tulle
