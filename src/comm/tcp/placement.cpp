#include "comm/tcp/placement.hpp"

#include <algorithm>
#include <map>

namespace tulle {

Placement place_ranks(std::span<const Card> cards) {
  struct Node {
    int lowest_rank = 0;
    double ranks = 0;
  };
  Placement placement;
  std::map<std::string, Node> nodes;
  std::map<std::string_view, std::uint32_t> ranks_of_machine;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    Node& node = nodes.try_emplace(cards[rank].host, Node{static_cast<int>(rank), 0}).first->second;
    node.ranks += 1;
    placement.nodes.push_back(node.lowest_rank);
    const std::uint32_t cores = std::max(1u, cards[rank].cores);
    if (++ranks_of_machine[machine_of(cards[rank].host)] > cores) placement.shares_cores = true;
    placement.ranks_per_core = std::max(placement.ranks_per_core, node.ranks / cores);
  }
  placement.on_one_node = nodes.size() <= 1;
  return placement;
}

// Through the loopback, or Gigabit Ethernet. Where ranks share cores, computing and copying take as many times as long.
Profile profile_of(const Placement& placement) {
  Profile profile;
  profile.gamma_sparse_seconds *= placement.ranks_per_core;
  profile.gamma_dense_seconds *= placement.ranks_per_core;
  profile.gamma_delta_vbyte_seconds *= placement.ranks_per_core;
  profile.gamma_bitmap_seconds *= placement.ranks_per_core;
  profile.gamma_rice_seconds *= placement.ranks_per_core;
  profile.gamma_select_seconds *= placement.ranks_per_core;
  profile.node_alpha_seconds = 10e-6 * placement.ranks_per_core;
  profile.node_beta_seconds_per_byte = 1.2e-10 * placement.ranks_per_core;
  profile.alpha_seconds = placement.on_one_node ? profile.node_alpha_seconds : 30e-6;
  profile.beta_seconds_per_byte = placement.on_one_node ? profile.node_beta_seconds_per_byte : 8.5e-9;
  profile.exchange_factor = 1;  // a stream has no handshake that could wait behind the other direction's data
  return profile;
}

}  // namespace tulle
