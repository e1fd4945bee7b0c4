// The flags that describe a simulated network.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "tulle/comm/network.hpp"

namespace tulle::cli {

/// As they were typed.
struct NetworkFlags {
  std::string network = "gige";  ///< a preset, or a JSON file
  std::optional<int> ranks_per_node;
  std::optional<std::pair<int, int>> fat_tree;  ///< nodes of a leaf, oversubscription
  std::vector<Slowed> stragglers;
  std::vector<Slowed> slow_links;
};

void add_network_flags(CLI::App& command, NetworkFlags& flags);

/// The network that they describe together. Throws bad_input.
Network network_from(const NetworkFlags& flags);
/// "gige: 30 us per message, 8 ns per byte; ...", one line without its end.
std::string describe(const Network& network);

}  // namespace tulle::cli
