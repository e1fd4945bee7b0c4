#include "tulle/comm/network.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr NetworkPreset kPresets[] = {
    {"gige", {3e-5, 8e-9}, "1 Gbit/s: what SparCML measured on Greina; 30 us: usual for MPI over TCP"},
    {"10gbe", {1e-5, 8e-10}, "10 Gbit/s, the nominal rate; 10 us: usual for MPI over TCP with offloading"},
    {"ib_fdr", {1.5e-6, 2e-10}, "40 Gbit/s: what SparCML measured on Greina; 1.5 us: usual for MPI on FDR"},
    {"aries", {1.5e-6, 1.6e-10}, "50 Gbit/s: what SparCML measured on Piz Daint; 1.5 us: usual for MPI on Aries"},
    {"wan_100mbit", {1e-2, 8e-8}, "100 Mbit/s, the slow link of 3LC; 10 ms: between cities"},
};

[[noreturn]] void reject(std::string_view field, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("network: {} {}", field, reason));
}

void require_seconds(std::string_view field, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) reject(field, fmt::format("is {}, not a time from 0 on", seconds));
}

void require_wire(std::string_view where, const Wire& wire) {
  require_seconds(fmt::format("{}.alpha_seconds", where), wire.alpha_seconds);
  require_seconds(fmt::format("{}.beta_seconds_per_byte", where), wire.beta_seconds_per_byte);
}

void require_slowed(std::string_view field, std::string_view what, const std::vector<Slowed>& all, int count) {
  for (const Slowed& each : all) {
    if (each.number < 0 || each.number >= count) {
      reject(field, fmt::format("names {} {}, but there are {}, numbered from 0", what, each.number, count));
    }
    if (!std::isfinite(each.factor) || each.factor <= 0) {
      reject(field, fmt::format("has factor {}, not a number above 0", each.factor));
    }
  }
}

}  // namespace

Profile Network::profile(Profile machine) const {
  machine.alpha_seconds = between_nodes.alpha_seconds;
  machine.beta_seconds_per_byte = between_nodes.beta_seconds_per_byte;
  machine.node_alpha_seconds = inside_node.alpha_seconds;
  machine.node_beta_seconds_per_byte = inside_node.beta_seconds_per_byte;
  return machine;
}

void Network::validate(int ranks) const {
  require_wire("between_nodes", between_nodes);
  require_wire("inside_node", inside_node);
  if (ranks_per_node < 1) reject("ranks_per_node", fmt::format("is {}, not 1 or more", ranks_per_node));
  if (nodes_per_leaf < 0) reject("nodes_per_leaf", fmt::format("is {}, not 0 or more", nodes_per_leaf));
  if (oversubscription < 1) reject("oversubscription", fmt::format("is {}, not 1 or more", oversubscription));
  if (!has_leaves() && oversubscription != 1) reject("oversubscription", "needs nodes_per_leaf");
  if (nodes_per_leaf % oversubscription != 0) {
    reject("oversubscription", fmt::format("{} does not divide the {} nodes of a leaf: their uplinks would not be a "
                                           "whole number",
                                           oversubscription, nodes_per_leaf));
  }
  require_slowed("stragglers", "rank", stragglers, ranks);
  require_slowed("slow_links", "node", slow_links, node_of(ranks - 1) + 1);
}

Network flat_network(const Profile& profile) {
  Network network;
  network.between_nodes = {profile.alpha_seconds, profile.beta_seconds_per_byte};
  network.inside_node = {profile.node_alpha_seconds, profile.node_beta_seconds_per_byte};
  return network;
}

std::span<const NetworkPreset> network_presets() { return kPresets; }

Network preset_network(std::string_view name) {
  std::string names;
  for (const NetworkPreset& preset : kPresets) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
    if (preset.name != name) continue;
    Network network;
    network.name = preset.name;
    network.between_nodes = preset.between_nodes;
    return network;
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("no network is called '{}'; there are {}{}", name, names, did_you_mean(name, names)));
}

}  // namespace tulle
