#include "cli/simulate/simulate_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common/network_flags.hpp"

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

std::string check_of(const measure::SimulatedRow& row) {
  if (!row.measured.failure.empty()) return "FAILED: " + row.measured.failure;
  return row.is_phantom ? "-" : "OK";
}

const measure::Row* best_dense(std::span<const measure::SimulatedRow> rows) {
  const measure::Row* best = nullptr;
  for (const auto& [measured, totals, is_phantom] : rows) {
    if (measured.is_dense && (best == nullptr || measured.seconds->median < best->seconds->median)) best = &measured;
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
  const measure::ComparisonSpec& spec = run_.spec;
  return fmt::format("# tulle {} simulate: {} of {} {}, {} inputs; indices: {}; values: {}\n",
                     run_.machine.tulle_version, spec.op.name(), spec.dimension, to_string(spec.type),
                     to_string(spec.overlap), spec.index_coding, to_string(spec.value_coding)) +
         fmt::format("# {}\n", describe(network_)) +
         "# time: virtual; messages: of all ranks; port: bytes through the port that was busy longest, one way\n"
         "# speed-up: against the fastest dense row; data: phantom where memory would not hold it, and then unchecked\n"
         "#\n" +
         table_.header();
}

std::vector<std::string> SimulationTable::cells(int ranks, const measure::SimulatedRow& row,
                                                const measure::Row* reference) const {
  const double seconds = row.measured.seconds->median;
  const bool is_auto = row.measured.algorithm != row.measured.chosen;
  return {
      fmt::format("{}", ranks),
      fmt::format("{:g}", row.measured.density),
      fmt::format("{}", row.measured.nnz),
      is_auto ? fmt::format("{}={}", row.measured.algorithm, row.measured.chosen) : std::string(row.measured.algorithm),
      fmt::format("{:.6g}", seconds),
      fmt::format("{}", row.totals.messages),
      fmt::format("{}", row.totals.busiest_port_bytes),
      reference != nullptr && seconds > 0 ? fmt::format("{:.3g}", reference->seconds->median / seconds) : "-",
      row.is_phantom ? "phantom" : "real",
      check_of(row)};
}

std::string SimulationTable::rows(int ranks, std::span<const measure::SimulatedRow> rows) const {
  const measure::Row* const reference = best_dense(rows);
  std::string text;
  for (const measure::SimulatedRow& row : rows) text += table_.row(cells(ranks, row, reference));
  return text;
}

std::string simulation_json(const BenchRun& run, const Network& network, const measure::SimulatedRow& row) {
  auto object = nlohmann::ordered_json::parse(bench_json(run, row.measured));
  if (row.is_phantom) {
    object["verified"] = nullptr;
    object.erase("failure");
  }
  object["is_phantom"] = row.is_phantom;
  object["calls"] = run.spec.calls;
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
