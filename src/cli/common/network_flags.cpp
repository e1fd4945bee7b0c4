#include "cli/common/network_flags.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/common/flags.hpp"
#include "cli/common/network_file.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/profile_flags.hpp"

namespace tulle::cli {
namespace {

// "3:2.5": what comes before and after the colon.
std::pair<std::string, std::string> pair_from(const std::string& text, std::string_view form) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) throw Error(ErrorKind::bad_input, fmt::format("'{}' is not like {}", text, form));
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::vector<Slowed> slowed_from(const std::string& flag, const std::vector<std::string>& texts) {
  std::vector<Slowed> all;
  for (const std::string& text : texts) {
    const auto [number, factor] = pair_from(text, "NUMBER:FACTOR, for example 3:2");
    all.push_back({.number = parse_int(flag, number, 0, 65535), .factor = parse_real(factor)});
  }
  return all;
}

bool is_preset(const std::string& name) {
  const auto presets = network_presets();
  return std::any_of(presets.begin(), presets.end(), [&](const NetworkPreset& preset) { return preset.name == name; });
}

// A preset's name, or a file; where it is neither, the error speaks of both.
Network base_network(const std::string& name) {
  if (is_preset(name)) return preset_network(name);
  if (::access(name.c_str(), F_OK) == 0) return read_network(name);
  try {
    return preset_network(name);
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}, or a JSON file ({})", error.what(), std::strerror(errno)));
  }
}

std::string preset_help() {
  std::string help = "a preset, or a JSON file (gige)";
  for (const NetworkPreset& preset : network_presets()) help += fmt::format("\n{}: {}", preset.name, preset.origin);
  return help;
}

}  // namespace

void add_network_flags(CLI::App& command, NetworkFlags& flags) {
  add(command, "--network", preset_names() + "|FILE", preset_help(),
      [&](const std::string& text) { flags.network = text; });
  add_int(command, "--ranks-per-node", "that share a node's port and its memory (1)", 1, 65536,
          [&](int number) { flags.ranks_per_node = number; });
  add(command, "--fat-tree", "NODES:FACTOR", "nodes of a leaf switch, and how many times too few uplinks it has: 16:4",
      [&](const std::string& text) {
        const auto [nodes, factor] = pair_from(text, "NODES:FACTOR, for example 16:4");
        flags.fat_tree = {parse_int("--fat-tree", nodes, 1, 65536), parse_int("--fat-tree", factor, 1, 65536)};
      });
  add_list(command, "--straggler", "RANK:FACTOR", "ranks that compute so many times slower: 3:2",
           [&](const auto& texts) { flags.stragglers = slowed_from("--straggler", texts); });
  add_list(command, "--slow-link", "NODE:FACTOR", "nodes whose port is so many times slower: 0:10",
           [&](const auto& texts) { flags.slow_links = slowed_from("--slow-link", texts); });
}

Network network_from(const NetworkFlags& flags) {
  Network network = base_network(flags.network);
  if (flags.ranks_per_node) network.ranks_per_node = *flags.ranks_per_node;
  if (flags.fat_tree) std::tie(network.nodes_per_leaf, network.oversubscription) = *flags.fat_tree;
  network.stragglers.insert(network.stragglers.end(), flags.stragglers.begin(), flags.stragglers.end());
  network.slow_links.insert(network.slow_links.end(), flags.slow_links.begin(), flags.slow_links.end());
  return network;
}

std::string describe(const Network& network) {
  const auto wire = [](const Wire& wire) {
    return fmt::format("{:.4g} us per message, {:.4g} ns per byte", wire.alpha_seconds * 1e6,
                       wire.beta_seconds_per_byte * 1e9);
  };
  std::string text = fmt::format("{}: {}", network.name, wire(network.between_nodes));
  if (network.ranks_per_node > 1) {
    text += fmt::format("; {} ranks per node, inside {}", network.ranks_per_node, wire(network.inside_node));
  }
  if (network.has_leaves()) {
    text += fmt::format("; leaves of {} nodes with {} uplinks", network.nodes_per_leaf, network.uplinks_per_leaf());
  }
  for (const Slowed& each : network.stragglers) {
    text += fmt::format("; rank {} computes {:g} times slower", each.number, each.factor);
  }
  for (const Slowed& each : network.slow_links) {
    text += fmt::format("; the port of node {} is {:g} times slower", each.number, each.factor);
  }
  return text;
}

}  // namespace tulle::cli
