#include "comm/sim_ports.hpp"

#include <algorithm>
#include <utility>

namespace tulle {

SimPorts::SimPorts(const Network& network, int ranks)
    : network_(network),
      ranks_(ranks),
      nodes_(network.node_of(ranks - 1) + 1),
      leaves_(network.has_leaves() ? network.leaf_of(nodes_ - 1) + 1 : 0),
      uplinks_(network.has_leaves() ? network.uplinks_per_leaf() : 0) {
  const double beta = network.between_nodes.beta_seconds_per_byte;
  add_ports(2 * nodes_, beta);
  add_ports(2 * ranks_, network.inside_node.beta_seconds_per_byte);
  add_ports(2 * leaves_ * uplinks_, beta);
  for (const Slowed& slow : network.slow_links) {
    for (const bool in : {false, true}) ports_[node_port(slow.number, in)].seconds_per_byte *= slow.factor;
  }
}

void SimPorts::add_ports(int count, double seconds_per_byte) {
  ports_.resize(ports_.size() + static_cast<std::size_t>(count), {.seconds_per_byte = seconds_per_byte});
}

bool SimPorts::owns_port(int source, int target) const {
  return network_.ranks_per_node == 1 || network_.node_of(source) == network_.node_of(target);
}

bool SimPorts::leaves_leaf(const SimTransfer& transfer) const {
  return network_.leaf_of(network_.node_of(transfer.source)) != network_.leaf_of(network_.node_of(transfer.target));
}

SimHop SimPorts::hop_after(const SimTransfer& transfer) const {
  switch (transfer.next) {
    case SimHop::source: return leaves_leaf(transfer) ? SimHop::uplink : SimHop::target;
    case SimHop::uplink: return SimHop::downlink;
    case SimHop::downlink: return SimHop::target;
    default: return SimHop::arrived;
  }
}

std::uint32_t SimPorts::port_of(const SimTransfer& transfer) const {
  const int source_node = network_.node_of(transfer.source), target_node = network_.node_of(transfer.target);
  switch (transfer.next) {
    case SimHop::uplink: return free_first(first_uplink(network_.leaf_of(source_node), false));
    case SimHop::downlink: return free_first(first_uplink(network_.leaf_of(target_node), true));
    default: break;
  }
  const bool in = transfer.next == SimHop::target;
  if (is_inside_node(transfer)) return memory_port(in ? transfer.target : transfer.source, in);
  return node_port(in ? target_node : source_node, in);
}

std::uint32_t SimPorts::free_first(std::uint32_t first_port) const {
  const auto begin = ports_.begin() + first_port;
  const auto earlier = [](const Port& a, const Port& b) { return a.free_at < b.free_at; };
  return static_cast<std::uint32_t>(std::min_element(begin, begin + uplinks_, earlier) - ports_.begin());
}

SimPorts::Passage SimPorts::pass(SimTransfer& transfer, double seconds) {
  const std::uint32_t number = port_of(transfer);
  Port& port = ports_[number];
  const double start = std::max(seconds, port.free_at);
  const double occupied = port.seconds_per_byte * static_cast<double>(transfer.bytes);
  port.free_at = start + occupied;
  port.load.bytes += transfer.bytes;
  port.load.seconds += occupied;
  transfer.last_byte_seconds = std::max(transfer.last_byte_seconds, port.free_at);
  transfer.next = hop_after(transfer);
  if (transfer.next == SimHop::arrived) return {transfer.last_byte_seconds, number};
  if (transfer.next != SimHop::target) return {start, number};
  const Wire& wire = is_inside_node(transfer) ? network_.inside_node : network_.between_nodes;
  const double latency = wire.alpha_seconds + transfer.delay_seconds;
  transfer.last_byte_seconds += latency;
  return {start + latency, number};
}

SimPorts::Load SimPorts::busiest() const {
  const auto lighter = [](const Port& a, const Port& b) {
    return std::pair(a.load.seconds, a.load.bytes) < std::pair(b.load.seconds, b.load.bytes);
  };
  return std::max_element(ports_.begin(), ports_.end(), lighter)->load;
}

}  // namespace tulle
