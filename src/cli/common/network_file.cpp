#include "cli/common/network_file.hpp"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_counts.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/positional_reader.hpp"

namespace tulle::cli {
namespace {

using nlohmann::json;

// json would cut a fraction off, and a number that is too large to something else.
int count_from(const json& value) {
  constexpr int kMost = 1 << 24;
  if (!value.is_number_integer() || value < 0 || value > kMost) {
    throw Error(ErrorKind::bad_input,
                fmt::format("network: {} is not a whole number from 0 to {}", shown(value), kMost));
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
    throw Error(ErrorKind::bad_input, fmt::format("network: {} is {}: {}", field, shown(value), error.what()));
  }
}

}  // namespace

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

Network read_network(const std::string& path) {
  const ReaderPtr reader = open_file(path);
  std::string text(reader->size(), '\0');
  reader->read_at(0, std::as_writable_bytes(std::span(text)));
  try {
    return network_from_json(text);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace tulle::cli
