// two_level: inside nodes first, then between them, as SparCML did with NCCL inside (SC'19).
//
// How it works. *Up*: the ranks of a node send their streams to its leader, its lowest rank, which reduces them in rank
// order. *Between*: the leaders split the sum into blocks, reduce and gather them, as ssar_split_allgather does with
// all ranks. *Down*: leaders hand the result to the ranks of their nodes. Data that ranks of a node have in common
// crosses its network port once.
//
//   depth     3 + ⌈log2 L⌉ for L nodes
//   messages  a leader of m ranks: L − 1 + ⌈log2 L⌉ between nodes, m − 1 down; other ranks: 1
//   data      through a node's port: 2·K'·(L−1)/L to K'·L pairs, with K' those of the node's sum

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"
#include "collectives/split.hpp"
#include "collectives/steps.hpp"

namespace tulle::algorithms {
namespace {

constexpr Step kUpStep = 0, kDownStep = after_message(kUpStep), kSplitStep = after_message(kDownStep),
               kGatherStep = after_message(kSplitStep);

// Who is where. Leaders are numbered in the order of their ranks.
struct Nodes {
  int own_leader = 0;
  PoolVector<int> followers;  ///< of this rank's node, increasing
  PoolVector<int> leaders;
  int own_number = 0;

  Nodes(std::span<const int> nodes, int rank) {
    PoolVector<int> seen;
    for (int other = 0; other < static_cast<int>(nodes.size()); ++other) {
      const int node = nodes[static_cast<std::size_t>(other)];
      const bool leads = std::ranges::find(seen, node) == seen.end();
      if (leads) seen.push_back(node);
      if (leads) leaders.push_back(other);
      if (node != nodes[static_cast<std::size_t>(rank)]) continue;
      if (leads) own_leader = other;
      if (leads) own_number = static_cast<int>(leaders.size()) - 1;
      if (!leads) followers.push_back(other);
    }
  }

  Members members() const {
    const auto rank_of = [](const void* context, int number) {
      return static_cast<const Nodes*>(context)->leaders[static_cast<std::size_t>(number)];
    };
    return {own_number, static_cast<int>(leaders.size()), rank_of, this};
  }
};

Task<Part> reduce_node(Exchange& exchange, Part mine, const Nodes& nodes) {
  if (nodes.followers.empty()) co_return mine;
  PoolVector<Part> parts{std::move(mine)};
  for (const int follower : nodes.followers) {
    Incoming message = co_await exchange.operation().receive(follower, kUpStep);
    parts.push_back(exchange.open(std::move(message)));
  }
  co_return exchange.reduce_many(parts);
}

Task<Part> reduce_between_nodes(Exchange& exchange, Part mine, const Nodes& nodes) {
  const Members leaders = nodes.members();
  Part sum = co_await split_and_reduce(exchange, std::move(mine), kSplitStep, leaders);
  Part block = exchange.with_coded_sum(std::move(sum), kGatherStep);
  co_return co_await gather_blocks(exchange, std::move(block), kGatherStep, leaders);
}

}  // namespace

Task<Outcome> two_level(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const Nodes nodes(operation.nodes(), operation.rank());
  Part mine = Exchange::contribution(payload.stream);
  if (operation.rank() != nodes.own_leader) {
    exchange.send(nodes.own_leader, kUpStep, mine);
    Incoming result = co_await operation.receive(nodes.own_leader, kDownStep);
    co_return exchange.outcome(exchange.open(std::move(result)));
  }
  Part of_node = co_await reduce_node(exchange, std::move(mine), nodes);
  Part sum = co_await reduce_between_nodes(exchange, std::move(of_node), nodes);
  if (!nodes.followers.empty()) exchange.encode(sum, sum.frame);
  for (const int follower : nodes.followers) exchange.send(follower, kDownStep, sum);
  co_return exchange.outcome(std::move(sum));
}

double two_level_cost(const CostInput& input) {
  const double followers = static_cast<double>(input.ranks) / input.nodes - 1;
  CostInput leaders = input;
  leaders.ranks = input.nodes;
  leaders.nnz = input.union_of(1 + followers);
  leaders.profile.beta_seconds_per_byte /= input.ranks_at_a_port();  // they have it for themselves
  Profile inside = input.profile;
  if (input.nodes > 1) inside.alpha_seconds = inside.node_alpha_seconds;
  if (input.nodes > 1) inside.beta_seconds_per_byte = inside.node_beta_seconds_per_byte;
  // Followers code at the same time, and the leader decodes what each sent; down it codes once, and all decode at once.
  const double up = burst_seconds(inside, followers, input.contribution_bytes(input.nnz, input.dimension)) +
                    (1 + followers) / 2 * input.coding_seconds(input.nnz, input.dimension) +
                    reduce_seconds(input, followers + 1, input.nnz, input.dimension, leaders.nnz, input.value_bytes);
  const double down =
      burst_seconds(inside, followers, input.stream_bytes(input.result_nnz, input.dimension)) +
      (input.is_sparse(input.result_nnz, input.dimension) ? input.coding_seconds(input.result_nnz, input.dimension)
                                                          : 0);
  return (followers > 0 ? up + down : 0) + (input.nodes > 1 ? ssar_split_allgather_cost(leaders) : 0);
}

}  // namespace tulle::algorithms
