// The registry, costs and simulations as lists and dicts.

#include <limits>
#include <optional>
#include <vector>

#include "core.hpp"
#include "measure/simulation.hpp"
#include "tulle/collectives/registry.hpp"
#include "tulle/comm/network.hpp"
#include "tulle/comm/profile_file.hpp"
#include "tulle/tune/explain.hpp"
#include "tulle/tune/plan.hpp"

namespace tulle::python {
namespace {

constexpr Named<Takes> kTakes[] = {{"stream", Takes::stream}, {"accumulator", Takes::accumulator}};

const Setter<PlannedCall> kCallSetters[] = {
    {"ranks", [](PlannedCall& c, const py::handle& v) { c.ranks = read<int>(v); }},
    {"ranks_per_node", [](PlannedCall& c, const py::handle& v) { c.ranks_per_node = read<int>(v); }},
    {"dimension", [](PlannedCall& c, const py::handle& v) { c.dimension = read<std::uint64_t>(v); }},
    {"density", [](PlannedCall& c, const py::handle& v) { c.density = read<double>(v); }},
    {"takes", [](PlannedCall& c, const py::handle& v) { c.takes = named(v, kTakes, "input"); }},
    {"type", [](PlannedCall& c, const py::handle& v) { c.type = value_type_from(read<std::string>(v)); }},
    {"index_coding", [](PlannedCall& c, const py::handle& v) { c.index_coding = read<std::string>(v); }},
    {"value_coding",
     [](PlannedCall& c, const py::handle& v) { c.value_coding = parse_value_codec(read<std::string>(v)); }},
    {"teams", [](PlannedCall& c, const py::handle& v) { c.teams = read<int>(v); }},
    {"network",
     [](PlannedCall& c, const py::handle& v) { c.profile = preset_network(read<std::string>(v)).profile(); }},
    {"profile", [](PlannedCall& c, const py::handle& v) { c.profile = read_profile(read<std::string>(v)).profile; }},
};

PlannedCall planned_call(const py::dict& arguments) {
  PlannedCall call;
  apply(call, arguments, kCallSetters);
  return call;
}

py::object cost_dict(const RowCost& cost) {
  if (cost.row == nullptr) return py::none();
  py::dict row;
  row["algorithm"] = text(cost.row->name);
  row["seconds"] = cost.seconds;
  row["alpha_seconds"] = cost.alpha_seconds;
  row["beta_seconds"] = cost.beta_seconds;
  row["gamma_seconds"] = cost.gamma_seconds;
  return row;
}

py::list crossover_list(const std::vector<Crossover>& crossovers) {
  py::list list;
  for (const Crossover& turn : crossovers) {
    py::dict entry;
    entry["density"] = turn.density;
    entry["below"] = text(turn.below->name);
    entry["above"] = text(turn.above->name);
    list.append(entry);
  }
  return list;
}

py::list bound_list(const std::vector<Bound>& bounds) {
  py::list list;
  for (const Bound& bound : bounds) {
    py::dict entry;
    entry["name"] = text(bound.name);
    entry["source"] = text(bound.source);
    entry["formula"] = text(bound.formula);
    entry["condition"] = text(bound.condition);
    entry["seconds"] = bound.seconds;
    entry["applies"] = bound.applies;
    list.append(entry);
  }
  return list;
}

py::dict explain_call(const py::dict& arguments) {
  const PlannedCall call = planned_call(arguments);
  const Explanation explanation = without_gil([&] { return explain(call); });
  py::dict result, indices;
  result["ranks"] = explanation.input.ranks;
  result["dimension"] = call.dimension;
  result["density"] = call.density;
  result["nnz"] = explanation.input.nnz;
  result["result_nnz"] = explanation.input.result_nnz;
  py::list rows;
  for (const RowCost& cost : explanation.rows) rows.append(cost_dict(cost));
  result["rows"] = rows;
  result["best_dense"] = cost_dict(explanation.best_dense);
  result["crossovers"] = crossover_list(explanation.crossovers);
  result["bounds"] = bound_list(explanation.bounds);
  indices["coding"] = text(to_string(explanation.indices.coding));
  indices["bits"] = explanation.indices.bits;
  indices["entropy_bits"] = explanation.indices.entropy_bits;
  result["indices"] = indices;
  return result;
}

py::list plan_calls(const std::vector<int>& ranks, const std::vector<double>& densities, const py::dict& arguments) {
  const PlannedCall call = planned_call(arguments);
  const std::vector<PlanCell> cells = without_gil([&] { return plan(call, ranks, densities); });
  py::list list;
  for (const PlanCell& cell : cells) {
    py::dict entry;
    entry["ranks"] = cell.ranks;
    entry["density"] = cell.density;
    entry["winner"] = cost_dict(cell.winner);
    entry["best_dense"] = cost_dict(cell.best_dense);
    entry["speed_up"] = cell.speed_up();
    list.append(entry);
  }
  return list;
}

// ---------------------------------------------------------------- simulating

struct SimulationOptions {
  SimOptions sim{.ranks = 8};
  measure::ComparisonSpec spec{.dimension = std::uint64_t{1} << 20, .repeats = 1, .deadline_seconds = 1e9};
  measure::DataRule data;
  double density = 0.01;
  int ranks_per_node = 1;
};

const Setter<SimulationOptions> kSimulationSetters[] = {
    {"ranks", [](SimulationOptions& o, const py::handle& v) { o.sim.ranks = read<int>(v); }},
    {"ranks_per_node", [](SimulationOptions& o, const py::handle& v) { o.ranks_per_node = read<int>(v); }},
    {"network",
     [](SimulationOptions& o, const py::handle& v) { o.sim.network = preset_network(read<std::string>(v)); }},
    {"dimension", [](SimulationOptions& o, const py::handle& v) { o.spec.dimension = read<std::uint64_t>(v); }},
    {"density", [](SimulationOptions& o, const py::handle& v) { o.density = read<double>(v); }},
    {"type", [](SimulationOptions& o, const py::handle& v) { o.spec.type = value_type_from(read<std::string>(v)); }},
    {"takes", [](SimulationOptions& o, const py::handle& v) { o.spec.takes = named(v, kTakes, "input"); }},
    {"index_coding", [](SimulationOptions& o, const py::handle& v) { o.spec.index_coding = read<std::string>(v); }},
    {"value_coding",
     [](SimulationOptions& o, const py::handle& v) { o.spec.value_coding = parse_value_codec(read<std::string>(v)); }},
    {"teams", [](SimulationOptions& o, const py::handle& v) { o.spec.teams = read<int>(v); }},
    {"calls", [](SimulationOptions& o, const py::handle& v) { o.spec.calls = read<int>(v); }},
    {"seed", [](SimulationOptions& o, const py::handle& v) { o.spec.seed = o.sim.seed = read<std::uint64_t>(v); }},
    {"data",
     [](SimulationOptions& o, const py::handle& v) { o.data.data = measure::sim_data_from(read<std::string>(v)); }},
};

void validate(const SimulationOptions& options) {
  constexpr int kMostRanks = 4096;
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(ErrorKind::bad_input, what);
  };
  require(options.sim.ranks >= 1 && options.sim.ranks <= kMostRanks, "ranks must be in [1, 4096]");
  require(options.density > 0 && options.density <= 1, "density must be in (0, 1]");
  require(options.spec.dimension > 0, "dimension must be at least 1");
  require(options.spec.calls >= 1, "calls must be at least 1");
}

// Names that last as long as the program.
std::vector<std::string_view> lasting_names(const std::vector<std::string>& names) {
  std::vector<std::string_view> lasting;
  for (const std::string& name : names) {
    lasting.push_back(name == kAuto ? kAuto : find_algorithm(OperationKind::allreduce, name).name);
  }
  return lasting;
}

py::dict simulated_dict(const measure::SimulatedRow& row) {
  const measure::Row& measured = row.measured;
  py::dict entry;
  entry["algorithm"] = text(measured.algorithm);
  entry["chosen"] = text(measured.chosen);
  entry["seconds"] = measured.seconds ? measured.seconds->median : std::numeric_limits<double>::quiet_NaN();
  entry["nnz"] = measured.nnz;
  entry["result_nnz"] = measured.nnz_result;
  entry["messages"] = measured.messages;
  entry["depth"] = measured.depth;
  entry["bytes_sent_max"] = measured.bytes_sent_max;
  entry["bytes_sent_total"] = measured.bytes_sent_total;
  entry["data_bytes_max"] = measured.data_bytes_max;
  entry["busiest_port_seconds"] = row.totals.busiest_port_seconds;
  entry["verified"] = measured.verified;
  entry["is_phantom"] = row.is_phantom;
  entry["failure"] = measured.failure;
  return entry;
}

py::list simulate(const std::vector<std::string>& algorithms, const py::dict& arguments) {
  SimulationOptions options;
  apply(options, arguments, kSimulationSetters);
  validate(options);
  if (!options.sim.network) options.sim.network = flat_network(options.sim.profile);
  options.sim.network->ranks_per_node = options.ranks_per_node;
  options.spec.algorithms = lasting_names(algorithms);
  measure::Simulation simulation(options.sim, options.spec, options.density, options.data);
  py::list rows;
  for (const std::string_view algorithm : options.spec.algorithms) {
    rows.append(simulated_dict(without_gil([&] { return simulation.run(algorithm); })));
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  return rows;
}

// ---------------------------------------------------------------- lists

py::list algorithm_rows() {
  py::list rows;
  for (const Algorithm& row : registry()) {
    py::dict entry;
    entry["name"] = text(row.name);
    entry["kind"] = text(to_string(row.kind));
    entry["summary"] = text(row.summary);
    entry["paper"] = text(row.paper);
    entry["exactness"] = text(to_string(row.exactness));
    entry["takes"] = row.takes == Takes::stream ? "stream" : "accumulator";
    entry["codes_values"] = row.codes_values;
    rows.append(entry);
  }
  return rows;
}

py::list network_rows() {
  py::list rows;
  for (const NetworkPreset& preset : network_presets()) {
    py::dict entry;
    entry["name"] = text(preset.name);
    entry["alpha_seconds"] = preset.between_nodes.alpha_seconds;
    entry["beta_seconds_per_byte"] = preset.between_nodes.beta_seconds_per_byte;
    entry["origin"] = text(preset.origin);
    rows.append(entry);
  }
  return rows;
}

}  // namespace

void bind_tuning(py::module_& module) {
  module.def("explain", &explain_call);
  module.def("plan", &plan_calls);
  module.def("simulate", &simulate);
  module.def("algorithms", &algorithm_rows);
  module.def("networks", &network_rows);
}

}  // namespace tulle::python
