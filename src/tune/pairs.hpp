// Who exchanges messages with whom while a network is probed. Arithmetic alone, no messages.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace tulle {

enum class PairScope { inside_node, between_nodes };

/// The partner of every rank, by rank; none where it has to look on. As many pairs as there are, all of them disjoint,
/// so that all can talk at once. Inside a node neighbours meet; between nodes the i-th rank of one node meets the i-th
/// of the next, with nodes taken two by two.
std::vector<std::optional<int>> pair_ranks(std::span<const int> nodes, PairScope scope);

/// The same with the first pair alone.
std::vector<std::optional<int>> first_pair(std::vector<std::optional<int>> pairs);

/// How many different nodes there are.
int count_nodes(std::span<const int> nodes);

}  // namespace tulle
