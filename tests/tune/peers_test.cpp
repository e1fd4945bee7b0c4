#include "tune/peers.hpp"
#include "tulle/comm/communicator.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

constexpr std::nullopt_t kNone = std::nullopt;

// A table of pairs, by each rank's partner.
PeerTable pairs(const std::vector<std::optional<int>>& partners) {
  PeerTable table;
  for (const auto& partner : partners) table.push_back(partner ? std::optional(Peers{*partner, *partner}) : kNone);
  return table;
}

TEST(Peers, pair_neighbours_inside_a_node) {
  const int nodes[] = {0, 0, 0, 7, 7, 9};
  EXPECT_EQ(pair_peers(nodes, PeerScope::inside_node), pairs({1, 0, kNone, 4, 3, kNone}));
}

TEST(Peers, pair_the_same_places_of_two_nodes) {
  const int nodes[] = {3, 3, 5, 5, 5, 1};
  EXPECT_EQ(pair_peers(nodes, PeerScope::between_nodes), pairs({2, 3, 0, 1, kNone, kNone}));
  EXPECT_EQ(pair_peers(nodes, PeerScope::leaders_of_nodes), pairs({2, kNone, 0, kNone, kNone, kNone}));
}

TEST(Peers, form_rings_inside_and_between_nodes) {
  const int nodes[] = {3, 3, 3, 5, 5, 1};
  EXPECT_EQ(ring_peers(nodes, PeerScope::inside_node),
            (PeerTable{Peers{1, 2}, Peers{2, 0}, Peers{0, 1}, Peers{4, 4}, Peers{3, 3}, kNone}));
  EXPECT_EQ(ring_peers(nodes, PeerScope::leaders_of_nodes),
            (PeerTable{Peers{3, 5}, kNone, kNone, Peers{5, 0}, kNone, Peers{0, 3}}));
  EXPECT_EQ(ring_peers(nodes, PeerScope::between_nodes),
            (PeerTable{Peers{3, 5}, Peers{4, 4}, kNone, Peers{5, 0}, Peers{1, 1}, Peers{0, 3}}));
}

TEST(Peers, see_nodes_whose_ranks_are_dealt_out_in_turn) {
  const int nodes[] = {0, 1, 0, 1};
  EXPECT_EQ(pair_peers(nodes, PeerScope::inside_node), pairs({2, 3, 0, 1}));
  EXPECT_EQ(pair_peers(nodes, PeerScope::between_nodes), pairs({1, 0, 3, 2}));
}

TEST(Peers, are_none_where_nobody_shares_a_node_or_all_do) {
  const int apart[] = {0, 1, 2}, together[] = {4, 4};
  EXPECT_EQ(ring_peers(apart, PeerScope::inside_node), PeerTable(3));
  EXPECT_EQ(pair_peers(together, PeerScope::between_nodes), PeerTable(2));
  EXPECT_EQ(pair_peers({}, PeerScope::inside_node), PeerTable());
}

TEST(Peers, alone_are_the_first_pair) {
  EXPECT_EQ(first_pair(pairs({kNone, 3, 4, 1, 2})), pairs({kNone, 3, kNone, 1, kNone}));
  EXPECT_EQ(first_pair(PeerTable(2)), PeerTable(2));
}

}  // namespace
}  // namespace tulle
