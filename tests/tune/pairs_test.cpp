#include "tune/pairs.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

using Pairs = std::vector<std::optional<int>>;
constexpr std::nullopt_t kNone = std::nullopt;

TEST(Pairs, meet_neighbours_inside_a_node) {
  const int nodes[] = {0, 0, 0, 7, 7, 9};
  EXPECT_EQ(pair_ranks(nodes, PairScope::inside_node), (Pairs{1, 0, kNone, 4, 3, kNone}));
}

TEST(Pairs, meet_the_same_place_of_the_next_node) {
  const int nodes[] = {3, 3, 5, 5, 5, 1};
  EXPECT_EQ(pair_ranks(nodes, PairScope::between_nodes), (Pairs{2, 3, 0, 1, kNone, kNone}));
  EXPECT_EQ(pair_ranks(nodes, PairScope::leaders_of_nodes), (Pairs{2, kNone, 0, kNone, kNone, kNone}));
}

TEST(Pairs, see_nodes_whose_ranks_are_dealt_out_in_turn) {
  const int nodes[] = {0, 1, 0, 1};
  EXPECT_EQ(pair_ranks(nodes, PairScope::inside_node), (Pairs{2, 3, 0, 1}));
  EXPECT_EQ(pair_ranks(nodes, PairScope::between_nodes), (Pairs{1, 0, 3, 2}));
}

TEST(Pairs, are_none_where_nobody_shares_a_node_or_all_do) {
  const int apart[] = {0, 1, 2}, together[] = {4, 4};
  EXPECT_EQ(pair_ranks(apart, PairScope::inside_node), Pairs(3));
  EXPECT_EQ(pair_ranks(together, PairScope::between_nodes), Pairs(2));
  EXPECT_EQ(pair_ranks({}, PairScope::inside_node), Pairs());
}

TEST(Pairs, alone_are_the_first_of_them) {
  EXPECT_EQ(first_pair({kNone, 3, 4, 1, 2}), (Pairs{kNone, 3, kNone, 1, kNone}));
  EXPECT_EQ(first_pair({kNone, kNone}), Pairs(2));
}

TEST(Pairs, nodes_are_counted_by_their_numbers) {
  const int nodes[] = {3, 5, 3, 1};
  EXPECT_EQ(count_nodes(nodes), 3);
}

}  // namespace
}  // namespace tulle
