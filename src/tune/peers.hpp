// Who sends to whom while a network is probed. Arithmetic alone, no messages.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace tulle {

/// Ranks that talk to each other.
enum class PeerScope {
  inside_node,       ///< those of a node
  leaders_of_nodes,  ///< the first ranks of all nodes
  between_nodes,     ///< the i-th ranks of all nodes, for every i
};

struct Peers {
  int to = 0;
  int from = 0;

  friend bool operator==(const Peers&, const Peers&) = default;
};

/// By rank; none where it has to look on.
using PeerTable = std::vector<std::optional<Peers>>;

/// Everyone sends to the next and receives from the one before, in rings.
PeerTable ring_peers(std::span<const int> nodes, PeerScope scope);
/// Two and two send to each other; of an odd number the last looks on.
PeerTable pair_peers(std::span<const int> nodes, PeerScope scope);
/// The first of those pairs, by itself. REQUIRES: pairs.
PeerTable first_pair(const PeerTable& pairs);

}  // namespace tulle
