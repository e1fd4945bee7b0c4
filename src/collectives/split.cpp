#include "collectives/split.hpp"

#include "tulle/collectives/collectives.hpp"

namespace tulle {

Range Blocks::of(int rank) const {
  if (cuts.empty()) return block_of(dimension, ranks, rank);
  return {cuts[static_cast<std::size_t>(rank)], cuts[static_cast<std::size_t>(rank) + 1]};
}

Members Members::all(const Exchange& exchange) {
  return {exchange.rank(), exchange.size(), [](const void*, int member) { return member; }, nullptr};
}

int Members::number_of(int rank) const {
  if (rank < size && (*this)[rank] == rank) return rank;  // always, where all take part
  int member = 0;
  while (member < size && (*this)[member] != rank) ++member;
  return member;
}

Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, Members members, std::optional<LayoutRule> rule,
                            Buffer result, std::span<const std::uint64_t> cuts) {
  const int number = members.rank;
  const int size = members.size;
  const Blocks blocks{exchange.dimension(), size, cuts};
  // The rank's own block speaks for all that it contributes.
  const auto part_for = [&](int owner) {
    const std::uint64_t contributed = owner == number ? mine.contributed : 0;
    // What a rank that is alone codes is the sum, and is decoded to its place.
    Buffer landing = size == 1 ? result : Buffer();
    return exchange.with_coded_contribution({slice(mine.stream, blocks.of(owner)), contributed, {}}, step,
                                            std::move(landing));
  };
  // Everyone starts with its right-hand neighbour, so that no owner is sent to by all at once.
  for (int i = 1; i < size; ++i) exchange.send(members[(number + i) % size], step, part_for((number + i) % size));

  PoolVector<Part> parts(static_cast<std::size_t>(size));
  parts[static_cast<std::size_t>(number)] = part_for(number);
  for (int i = 1; i < size; ++i) {
    Incoming message = co_await exchange.operation().receive_next(step);
    const int from = members.number_of(message.from);
    if (from == size) reject_message(message.from, "it takes no part in this");
    parts[static_cast<std::size_t>(from)] = exchange.open(std::move(message));
  }
  Buffer landing;
  if (!result.empty()) landing = exchange.block_of_result(result, blocks.of(number));
  co_return exchange.reduce_many(parts, rule.value_or(exchange.coded_layout_rule()), std::move(landing));
}

Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, std::optional<LayoutRule> rule, Buffer result,
                            std::span<const std::uint64_t> cuts) {
  return split_and_reduce(exchange, std::move(mine), step, Members::all(exchange), rule, std::move(result), cuts);
}

}  // namespace tulle
