// The split: every rank sends each owner its block, and the owner reduces what it gets.
#pragma once

#include <optional>
#include <span>

#include "collectives/exchange.hpp"

namespace tulle {

/// Who owns what: equal blocks, or regions between the P + 1 `cuts`.
struct Blocks {
  std::uint64_t dimension = 0;
  int ranks = 1;
  std::span<const std::uint64_t> cuts;

  Range of(int rank) const;
};

/// The ranks that take part where not all do, numbered from 0.
struct Members {
  int rank;  ///< this rank's number
  int size;
  int (*rank_of)(const void* context, int member);
  const void* context;

  static Members all(const Exchange& exchange);
  int operator[](int member) const { return rank_of(context, member); }
  /// `size` where the rank is none of them.
  int number_of(int rank) const;
};

/// Sends every rank its block of `mine` and reduces what arrives for this rank's own, in rank order.
/// P−1 messages each way, one after the other nowhere. A dense block is made inside `result` where that is given.
Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, Members members,
                            std::optional<LayoutRule> rule = {}, Buffer result = {},
                            std::span<const std::uint64_t> cuts = {});
Task<Part> split_and_reduce(Exchange& exchange, Part mine, Step step, std::optional<LayoutRule> rule = {},
                            Buffer result = {}, std::span<const std::uint64_t> cuts = {});

}  // namespace tulle
