// What the simulator's wires are: a flat cluster, nodes with several ranks, or leaf switches with too few uplinks.
//
// Ports. Every node has one full-duplex port to its switch, which its ranks share. Inside a node every rank has a port
// of its own to memory. A leaf switch of m nodes with oversubscription f has m/f uplinks, full-duplex and as fast as a
// node's port; a message to another leaf takes the uplink, and then the downlink of the other leaf, that is free first.
// A port passes one message after the other, in the order in which they reach it. docs/simulation.md has the
// arithmetic.
//
// Threads: plain values and pure functions, for any thread; a Network is changed by one while no other uses it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/comm/profile.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// α and β of one kind of wire.
struct Wire {
  double alpha_seconds = 2e-6;
  double beta_seconds_per_byte = 1e-10;

  friend bool operator==(const Wire&, const Wire&) = default;
};

/// A rank or a node that is slower than its peers.
struct Slowed {
  int number = 0;
  double factor = 1;

  friend bool operator==(const Slowed&, const Slowed&) = default;
};

/// REQUIRES: its functions other than validate() are called only where that does not throw.
struct Network {
  std::string name = "custom";
  Wire between_nodes = {};
  Wire inside_node{.alpha_seconds = 5e-7, .beta_seconds_per_byte = 1e-10};
  int ranks_per_node = 1;               ///< ranks 0 to ranks_per_node − 1 are on node 0, and so on
  int nodes_per_leaf = 0;               ///< 0: all nodes on one switch
  int oversubscription = 1;             ///< of a leaf's uplinks; divides nodes_per_leaf
  std::vector<Slowed> stragglers = {};  ///< ranks whose computation takes `factor` times as long
  std::vector<Slowed> slow_links = {};  ///< nodes whose port takes `factor` times as long for a byte, both ways

  int node_of(int rank) const { return rank / ranks_per_node; }
  bool has_leaves() const { return nodes_per_leaf > 0; }
  int leaf_of(int node) const { return has_leaves() ? node / nodes_per_leaf : 0; }
  int uplinks_per_leaf() const { return nodes_per_leaf / oversubscription; }
  /// `machine` with this network's α and β.
  Profile profile(Profile machine = {}) const;
  /// Throws bad_input naming the field, also where a straggler or a slow link is not among `ranks` ranks.
  void validate(int ranks) const;
};

/// One switch and one rank a node, with α and β of `profile`.
Network flat_network(const Profile& profile);

/// A named network and where its numbers come from.
struct NetworkPreset {
  std::string_view name = {};
  Wire between_nodes = {};
  std::string_view origin = {};
};
/// All presets; they never change.
std::span<const NetworkPreset> network_presets();
/// Throws bad_input that lists the names.
Network preset_network(std::string_view name);

}  // namespace tulle
#pragma GCC visibility pop
