#include "tune/peers.hpp"

#include <algorithm>
#include <map>

namespace tulle {
namespace {

using Groups = std::vector<std::vector<int>>;

void connect(PeerTable& table, int rank, int to, int from) { table[static_cast<std::size_t>(rank)] = Peers{to, from}; }

// In the order of their lowest ranks: node numbers mean nothing but equal or not.
Groups ranks_by_node(std::span<const int> nodes) {
  std::map<int, std::size_t> place_of_node;
  Groups ranks;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto [place, is_new] = place_of_node.try_emplace(nodes[rank], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[place->second].push_back(static_cast<int>(rank));
  }
  return ranks;
}

Groups ranks_by_place(const Groups& by_node, std::size_t places) {
  Groups ranks(places);
  for (const std::vector<int>& node : by_node) {
    for (std::size_t i = 0; i < std::min(places, node.size()); ++i) ranks[i].push_back(node[i]);
  }
  return ranks;
}

Groups groups_of(std::span<const int> nodes, PeerScope scope) {
  const Groups by_node = ranks_by_node(nodes);
  switch (scope) {
    case PeerScope::inside_node: return by_node;
    case PeerScope::leaders_of_nodes: return ranks_by_place(by_node, 1);
    case PeerScope::between_nodes: return ranks_by_place(by_node, nodes.size());
  }
  return {};
}

}  // namespace

PeerTable ring_peers(std::span<const int> nodes, PeerScope scope) {
  PeerTable table(nodes.size());
  for (const std::vector<int>& group : groups_of(nodes, scope)) {
    const std::size_t size = group.size();
    if (size < 2) continue;
    for (std::size_t i = 0; i < size; ++i)
      connect(table, group[i], group[(i + 1) % size], group[(i + size - 1) % size]);
  }
  return table;
}

PeerTable pair_peers(std::span<const int> nodes, PeerScope scope) {
  PeerTable table(nodes.size());
  for (const std::vector<int>& group : groups_of(nodes, scope)) {
    for (std::size_t i = 0; i + 1 < group.size(); i += 2) {
      connect(table, group[i], group[i + 1], group[i + 1]);
      connect(table, group[i + 1], group[i], group[i]);
    }
  }
  return table;
}

PeerTable first_pair(const PeerTable& pairs) {
  PeerTable alone(pairs.size());
  const auto first = std::ranges::find_if(pairs, [](const auto& peers) { return peers.has_value(); });
  if (first == pairs.end()) return alone;
  const int rank = static_cast<int>(first - pairs.begin()), partner = (*first)->to;
  connect(alone, rank, partner, partner);
  connect(alone, partner, rank, rank);
  return alone;
}

}  // namespace tulle
