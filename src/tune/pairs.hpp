// Who exchanges messages with whom while a network is probed. Arithmetic alone, no messages.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace tulle {

enum class PairScope {
  inside_node,       ///< neighbours on a node
  leaders_of_nodes,  ///< the first ranks of two nodes
  between_nodes,     ///< the i-th ranks of two nodes, for every i
};

/// The partner of every rank; none where it has to look on. All pairs are disjoint, so that they can talk at once;
/// nodes are taken two by two.
std::vector<std::optional<int>> pair_ranks(std::span<const int> nodes, PairScope scope);

/// The same with the first pair alone.
std::vector<std::optional<int>> first_pair(std::vector<std::optional<int>> pairs);

/// How many different nodes there are.
int count_nodes(std::span<const int> nodes);

}  // namespace tulle
