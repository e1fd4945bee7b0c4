#include "comm/derive_context.hpp"

namespace tulle {

std::shared_ptr<Context> derive_context(const Context& parent, ContextId id, std::span<const int> ranks) {
  auto context = std::make_shared<Context>();
  context->id = id;
  context->table = parent.table;
  context->default_deadline_seconds = parent.default_deadline_seconds;
  context->peer_policy = parent.peer_policy;
  context->set_profile(parent.profile);
  context->rank_of_world.assign(parent.rank_of_world.size(), -1);
  PoolVector<int> nodes;
  for (const int rank : ranks) {
    const int world_rank = parent.world_ranks[static_cast<std::size_t>(rank)];
    if (rank == parent.rank) context->rank = context->size();
    context->rank_of_world[static_cast<std::size_t>(world_rank)] = context->size();
    context->world_ranks.push_back(world_rank);
    nodes.push_back(parent.nodes[static_cast<std::size_t>(rank)]);
  }
  context->set_nodes(std::move(nodes));
  return context;
}

}  // namespace tulle
