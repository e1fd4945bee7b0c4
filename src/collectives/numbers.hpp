// A few numbers of every rank to every rank, for rows that have to agree on something. What arrives is not believed.
#pragma once

#include "collectives/exchange.hpp"

namespace tulle {

/// Everyone's numbers, by rank; all have as many. Throws bad_message naming the rank that sent other than that.
/// ⌈log2 P⌉ rounds; uses the steps up to after_gather(first_step).
Task<PoolVector<PoolVector<std::int64_t>>> share_numbers(Operation& operation, PoolVector<std::int64_t> mine,
                                                         Step first_step);

/// The numbers of a part. Throws bad_message naming `from` where they are not `count` values.
PoolVector<std::int64_t> numbers_of(const Part& part, int from, std::size_t count);
/// `number` as a count. Throws bad_message naming `from` where it is negative or above `most`.
std::uint64_t count_of(std::int64_t number, int from, std::uint64_t most, std::string_view what);
/// Throws bad_message naming `from` where the numbers are not cuts of [0, dimension) that follow one another.
void require_cuts(std::span<const std::int64_t> cuts, int from, std::uint64_t dimension);

}  // namespace tulle
