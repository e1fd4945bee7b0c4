#include "tune/pairs.hpp"

#include <algorithm>
#include <map>

namespace tulle {
namespace {

using Pairs = std::vector<std::optional<int>>;

void join(Pairs& pairs, int a, int b) {
  pairs[static_cast<std::size_t>(a)] = b;
  pairs[static_cast<std::size_t>(b)] = a;
}

// In the order of their lowest ranks: node numbers mean nothing but equal or not.
std::vector<std::vector<int>> ranks_by_node(std::span<const int> nodes) {
  std::map<int, std::size_t> place_of_node;
  std::vector<std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto [place, is_new] = place_of_node.try_emplace(nodes[rank], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[place->second].push_back(static_cast<int>(rank));
  }
  return ranks;
}

void pair_neighbours(Pairs& pairs, std::span<const int> ranks) {
  for (std::size_t i = 0; i + 1 < ranks.size(); i += 2) join(pairs, ranks[i], ranks[i + 1]);
}

void pair_across(Pairs& pairs, std::span<const int> here, std::span<const int> there, std::size_t most) {
  for (std::size_t i = 0; i < std::min({here.size(), there.size(), most}); ++i) join(pairs, here[i], there[i]);
}

}  // namespace

Pairs pair_ranks(std::span<const int> nodes, PairScope scope) {
  Pairs pairs(nodes.size());
  const std::vector<std::vector<int>> ranks = ranks_by_node(nodes);
  if (scope == PairScope::inside_node) {
    for (const std::vector<int>& node : ranks) pair_neighbours(pairs, node);
    return pairs;
  }
  const std::size_t most = scope == PairScope::leaders_of_nodes ? 1 : nodes.size();
  for (std::size_t i = 0; i + 1 < ranks.size(); i += 2) pair_across(pairs, ranks[i], ranks[i + 1], most);
  return pairs;
}

Pairs first_pair(Pairs pairs) {
  const auto first = std::ranges::find_if(pairs, [](const auto& partner) { return partner.has_value(); });
  if (first == pairs.end()) return pairs;
  Pairs alone(pairs.size());
  join(alone, static_cast<int>(first - pairs.begin()), **first);
  return alone;
}

int count_nodes(std::span<const int> nodes) { return static_cast<int>(ranks_by_node(nodes).size()); }

}  // namespace tulle
