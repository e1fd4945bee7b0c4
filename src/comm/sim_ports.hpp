// The ports of a simulated network, and the way of a message through them.
//
// How it works. A message of L bytes takes a *route*: the port of its sender, an uplink and a downlink where it leaves
// a leaf switch, the port of its receiver. It enters a port when its first byte reaches it and the port is free, and
// occupies it for β·L; the first byte goes on at once, and reaches the last port α later. The message has arrived when
// the last port has passed it, and no earlier than the last byte of the slowest port on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "tulle/comm/network.hpp"

namespace tulle {

enum class SimHop : std::uint8_t { source, uplink, downlink, target, arrived };

/// Where a message is on its way.
struct SimTransfer {
  int source = 0;
  int target = 0;
  std::uint64_t bytes = 0;
  double delay_seconds = 0;      ///< beyond α
  double last_byte_seconds = 0;  ///< when the last byte is where the first is now
  SimHop next = SimHop::source;
};

class SimPorts {
 public:
  SimPorts(const Network& network, int ranks);

  std::size_t count() const { return ports_.size(); }
  /// True where no other rank's messages use the port by which `source` sends to `target`.
  bool owns_port(int source, int target) const;

  /// When the transfer reaches the next hop, and the port that it came out of.
  struct Passage {
    double seconds;
    std::uint32_t port;
  };
  /// Takes the transfer, whose first byte is at its next hop at `seconds`, through that port.
  Passage pass(SimTransfer& transfer, double seconds);

  /// Of the port and direction that was occupied longest.
  struct Load {
    std::uint64_t bytes = 0;
    double seconds = 0;
  };
  Load busiest() const;

 private:
  struct Port {
    double seconds_per_byte = 0;
    double free_at = 0;
    Load load;
  };

  bool is_inside_node(const SimTransfer& transfer) const {
    return network_.node_of(transfer.source) == network_.node_of(transfer.target);
  }
  bool leaves_leaf(const SimTransfer& transfer) const;
  SimHop hop_after(const SimTransfer& transfer) const;
  std::uint32_t port_of(const SimTransfer& transfer) const;
  std::uint32_t free_first(std::uint32_t first_port) const;
  void add_ports(int count, double seconds_per_byte);

  // Ports of a kind lie one after the other: nodes out and in, ranks to memory out and in, leaves up and down.
  std::uint32_t node_port(int node, bool in) const { return static_cast<std::uint32_t>(in ? nodes_ + node : node); }
  std::uint32_t memory_port(int rank, bool in) const {
    return static_cast<std::uint32_t>(2 * nodes_ + (in ? ranks_ : 0) + rank);
  }
  std::uint32_t first_uplink(int leaf, bool down) const {
    return static_cast<std::uint32_t>(2 * (nodes_ + ranks_) + ((down ? leaves_ : 0) + leaf) * uplinks_);
  }

  Network network_;
  int ranks_;
  int nodes_;
  int leaves_;
  int uplinks_;  // of each leaf
  std::vector<Port> ports_;
};

}  // namespace tulle
