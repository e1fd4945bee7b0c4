#include "cli/simulate_network.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/flags.hpp"
#include "cli/numbers.hpp"
#include "cli/profile_flags.hpp"

namespace tulle::cli {
namespace {

using nlohmann::json;

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

// json would cut a fraction off, and a number that is too large to something else.
int count_from(const json& value) {
  constexpr int kMost = 1 << 24;
  if (!value.is_number_integer() || value < 0 || value > kMost) {
    throw Error(ErrorKind::bad_input,
                fmt::format("network: {} is not a whole number from 0 to {}", value.dump(), kMost));
  }
  return value.get<int>();
}

std::vector<Slowed> slowed_from(const json& list, std::string_view key) {
  std::vector<Slowed> all;
  for (const json& each : list) all.push_back({count_from(each.at(key)), each.at("factor").get<double>()});
  return all;
}

using FieldReader = std::function<void(Network&, const json&)>;

const std::map<std::string, FieldReader>& field_readers() {
  static const std::map<std::string, FieldReader> readers = {
      {"preset", [](Network&, const json&) {}},  // read first, see below
      {"name", [](Network& network, const json& value) { network.name = value; }},
      {"alpha_seconds", [](Network& network, const json& value) { network.between_nodes.alpha_seconds = value; }},
      {"beta_seconds_per_byte",
       [](Network& network, const json& value) { network.between_nodes.beta_seconds_per_byte = value; }},
      {"node_alpha_seconds", [](Network& network, const json& value) { network.inside_node.alpha_seconds = value; }},
      {"node_beta_seconds_per_byte",
       [](Network& network, const json& value) { network.inside_node.beta_seconds_per_byte = value; }},
      {"ranks_per_node", [](Network& network, const json& value) { network.ranks_per_node = count_from(value); }},
      {"nodes_per_leaf", [](Network& network, const json& value) { network.nodes_per_leaf = count_from(value); }},
      {"oversubscription", [](Network& network, const json& value) { network.oversubscription = count_from(value); }},
      {"stragglers", [](Network& network, const json& value) { network.stragglers = slowed_from(value, "rank"); }},
      {"slow_links", [](Network& network, const json& value) { network.slow_links = slowed_from(value, "node"); }},
  };
  return readers;
}

void read_field(Network& network, const std::string& field, const json& value) {
  const auto reader = field_readers().find(field);
  if (reader == field_readers().end()) {
    std::string fields;
    for (const auto& [name, unused] : field_readers()) fields += (fields.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::bad_input, fmt::format("network: there is no field '{}'; there are {}", field, fields));
  }
  try {
    reader->second(network, value);
  } catch (const json::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("network: {} is {}: {}", field, value.dump(), error.what()));
  }
}

bool is_preset(const std::string& name) {
  const auto presets = network_presets();
  return std::any_of(presets.begin(), presets.end(), [&](const NetworkPreset& preset) { return preset.name == name; });
}

// A preset's name, or a file; where it is neither, the error speaks of both.
Network base_network(const std::string& name) {
  if (is_preset(name)) return preset_network(name);
  std::ifstream file(name);
  if (file) {
    try {
      return network_from_json({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", name, error.what()));
    }
  }
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

Network network_from_json(const std::string& text) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("network: is not JSON: {}", error.what()));
  }
  if (!object.is_object()) throw Error(ErrorKind::bad_input, "network: is not a JSON object");
  Network network;
  if (const auto preset = object.find("preset"); preset != object.end()) {
    if (!preset->is_string()) throw Error(ErrorKind::bad_input, "network: preset is not a text");
    network = preset_network(preset->get<std::string>());
  }
  for (const auto& [field, value] : object.items()) read_field(network, field, value);
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
