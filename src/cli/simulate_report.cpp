#include "cli/simulate_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/simulate_network.hpp"

namespace tulle::cli {
namespace {

std::vector<Column> columns() {
  return {{"ranks", "", Align::right, 5},
          {"density", "", Align::right, 8},
          {"nnz/rank", "(values)", Align::right, 9},
          {"algorithm", "", Align::left, 26},
          {"time", "(s)", Align::right, 10},
          {"messages", "", Align::right, 10},
          {"port", "(B)", Align::right, 11},
          {"speed-up", "(times)", Align::right, 8},
          {"data", "", Align::left, 7},
          {"check", "", Align::left, 6}};
}

std::string check_of(const SimulatedRow& row) {
  if (!row.race.failure.empty()) return "FAILED: " + row.race.failure;
  return row.is_phantom ? "-" : "OK";
}

const RaceRow* best_dense(std::span<const SimulatedRow> rows) {
  const RaceRow* best = nullptr;
  for (const auto& [race, totals, is_phantom] : rows) {
    if (race.is_dense && (best == nullptr || race.seconds->median < best->seconds->median)) best = &race;
  }
  return best;
}

nlohmann::ordered_json slowed_json(const std::vector<Slowed>& all, const char* key) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Slowed& each : all) list.push_back({{key, each.number}, {"factor", each.factor}});
  return list;
}

}  // namespace

SimulationTable::SimulationTable(const BenchRun& run, const Network& network)
    : run_(run), network_(network), table_(columns(), "# ") {}

std::string SimulationTable::header() const {
  const RaceSpec& spec = run_.spec;
  return fmt::format("# tulle {} simulate: {} of {} {}, {} inputs; indices: {}; values: {}\n",
                     run_.machine.tulle_version, spec.op.name(), spec.dimension, to_string(spec.type),
                     to_string(spec.overlap), spec.index_coding, to_string(spec.value_coding)) +
         fmt::format("# {}\n", describe(network_)) +
         "# time: virtual; messages: of all ranks; port: bytes through the port that was busy longest, one way\n"
         "# speed-up: against the fastest dense row; data: phantom where memory would not hold it, and then unchecked\n"
         "#\n" +
         table_.header();
}

std::vector<std::string> SimulationTable::cells(int ranks, const SimulatedRow& row, const RaceRow* reference) const {
  const double seconds = row.race.seconds->median;
  const bool is_auto = row.race.algorithm != row.race.chosen;
  return {fmt::format("{}", ranks),
          fmt::format("{:g}", row.race.density),
          fmt::format("{}", row.race.nnz),
          is_auto ? fmt::format("{}={}", row.race.algorithm, row.race.chosen) : std::string(row.race.algorithm),
          fmt::format("{:.6g}", seconds),
          fmt::format("{}", row.totals.messages),
          fmt::format("{}", row.totals.busiest_port_bytes),
          reference != nullptr && seconds > 0 ? fmt::format("{:.3g}", reference->seconds->median / seconds) : "-",
          row.is_phantom ? "phantom" : "real",
          check_of(row)};
}

std::string SimulationTable::rows(int ranks, std::span<const SimulatedRow> rows) const {
  const RaceRow* const reference = best_dense(rows);
  std::string text;
  for (const SimulatedRow& row : rows) text += table_.row(cells(ranks, row, reference));
  return text;
}

std::string simulation_json(const BenchRun& run, const Network& network, const SimulatedRow& row) {
  auto object = nlohmann::ordered_json::parse(bench_json(run, row.race));
  if (row.is_phantom) {
    object["verified"] = nullptr;
    object.erase("failure");
  }
  object["is_phantom"] = row.is_phantom;
  object["busiest_port_bytes"] = row.totals.busiest_port_bytes;
  object["busiest_port_seconds"] = row.totals.busiest_port_seconds;
  object["network"] = network.name;
  object["alpha_seconds"] = network.between_nodes.alpha_seconds;
  object["beta_seconds_per_byte"] = network.between_nodes.beta_seconds_per_byte;
  object["ranks_per_node"] = network.ranks_per_node;
  object["nodes_per_leaf"] = network.nodes_per_leaf;
  object["oversubscription"] = network.oversubscription;
  object["stragglers"] = slowed_json(network.stragglers, "rank");
  object["slow_links"] = slowed_json(network.slow_links, "node");
  return object.dump();
}

}  // namespace tulle::cli
