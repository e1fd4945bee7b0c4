// tulle simulate: allreduces of any number of ranks on any network, in virtual time.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "base/progress.hpp"
#include "cli/bench/bench_flags.hpp"
#include "cli/commands.hpp"
#include "cli/common/network_flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/simulate/simulate_report.hpp"
#include "cli/simulate/simulate_trace.hpp"
#include "measure/simulation.hpp"

namespace tulle::cli {
namespace {

constexpr int kMostRanks = 4096;
// Virtual time may be long: a slow network is not a fault.
constexpr double kDeadlineSeconds = 1e9;

struct SimulateFlags {
  BenchFlags comparison;
  std::vector<int> ranks = {8};
  NetworkFlags network_flags;
  Network network;
  measure::DataRule data;
  bool computes = true;
  TraceFlags trace;
};

// Simulates row by row, and shows the rows of one density when they are there.
class Simulator {
 public:
  Simulator(const SimulateFlags& flags, JsonLines* json)
      : flags_(flags), json_(json), progress_("simulating", total_rows(flags)) {
    run_ = {.spec = flags.comparison.spec,
            .transport = "sim",
            .machine = measure::this_machine(),
            .timestamp = measure::utc_timestamp()};
    run_.spec.repeats = 1;
    options_ = {.profile = flags.computes ? Profile{} : measure::free_computation(),
                .seed = flags.comparison.spec.seed,
                .network = flags.network};
  }

  int run() {
    const SimulationTable table(run_, flags_.network);
    print(table.header());
    for (const int ranks : flags_.ranks) {
      dense_rows_.clear();
      run_.ranks = options_.ranks = ranks;
      for (const double density : flags_.comparison.densities) show(table, simulate(density));
    }
    return has_failed_ ? 1 : 0;
  }

 private:
  static std::uint64_t total_rows(const SimulateFlags& flags) {
    return flags.ranks.size() * flags.comparison.densities.size() * flags.comparison.spec.algorithms.size();
  }

  std::vector<measure::SimulatedRow> simulate(double density) {
    measure::Simulation simulation(options_, run_.spec, density, flags_.data);
    std::vector<measure::SimulatedRow> rows;
    for (const std::string_view algorithm : run_.spec.algorithms) {
      progress_.advance(0, fmt::format("{} of {} ranks", algorithm, options_.ranks));
      rows.push_back(simulate(simulation, algorithm, density));
      progress_.advance(1, algorithm);
    }
    return rows;
  }

  // Dense vectors take the same time at every density, unless zeros are coded, so they are simulated once.
  measure::SimulatedRow simulate(measure::Simulation& simulation, std::string_view algorithm, double density) {
    const bool is_always_the_same = measure::wants_dense_input(algorithm) &&
                                    run_.spec.input == measure::InputForm::matching &&
                                    run_.spec.value_coding.coding == ValueCoding::raw;
    if (!is_always_the_same) return simulation.run(algorithm);
    if (!dense_rows_.contains(algorithm)) dense_rows_[algorithm] = simulation.run(algorithm);
    measure::SimulatedRow row = dense_rows_[algorithm];
    row.measured.density = density;
    row.measured.nnz = measure::share_of(run_.spec.dimension, density);
    return row;
  }

  void show(const SimulationTable& table, const std::vector<measure::SimulatedRow>& rows) {
    progress_.clear();
    print(table.rows(options_.ranks, rows));
    for (const measure::SimulatedRow& row : rows) {
      has_failed_ = has_failed_ || !row.measured.failure.empty();
      if (json_ != nullptr) json_->append(simulation_json(run_, flags_.network, row));
    }
  }

  const SimulateFlags& flags_;
  JsonLines* json_;
  Progress progress_;
  BenchRun run_;
  SimOptions options_;
  std::map<std::string_view, measure::SimulatedRow> dense_rows_;
  bool has_failed_ = false;
};

void add_simulate_flags(CLI::App& command, SimulateFlags& flags) {
  add_list(command, "--ranks", fmt::format("1..{}", kMostRanks), "how many (8)", [&](const auto& texts) {
    flags.ranks.clear();
    for (const std::string& text : texts) flags.ranks.push_back(parse_int("--ranks", text, 1, kMostRanks));
  });
  add_network_flags(command, flags.network_flags);
  add_comparison_flags(command, flags.comparison);
  add_int(command, "--calls", "of every row, with the state that the one before left; median times, mean counts (1)", 1,
          100000, [&](int number) { flags.comparison.spec.calls = number; });
  command.add_flag_callback(
      "--no-computation", [&] { flags.computes = false; }, "count the network alone: computation takes no time");
  add(command, "--data", "auto|real|phantom",
      "real data, checked; or lengths alone; or whichever fits the memory limit (auto)",
      [&](const std::string& text) { flags.data.data = measure::sim_data_from(text); });
  add(command, "--memory", "BYTES", "that real data may take (2G)",
      [&](const std::string& text) { flags.data.memory_bytes = static_cast<double>(parse_count(text)); });
  add_trace_flags(command, flags.trace);
}

TraceRun trace_run(const SimulateFlags& flags) {
  return {.flags = flags.trace,
          .ranks = flags.ranks,
          .network = flags.network,
          .rule = flags.data,
          .seed = flags.comparison.spec.seed,
          .computes = flags.computes};
}

void finish(SimulateFlags& flags) {
  require_trace(flags.trace);
  flags.comparison.launch.transport = TransportChoice::sim;
  flags.comparison.spec.deadline_seconds = kDeadlineSeconds;
  finish_comparison(flags.comparison);
  told_by("--network", [&] {
    flags.network = network_from(flags.network_flags);
    flags.network.validate(*std::min_element(flags.ranks.begin(), flags.ranks.end()));
  });
}

constexpr const char* kExamples = R"(Examples:
  tulle simulate --network gige --ranks 8 --dimension 16M --density 0.01% 1% 20%
  tulle simulate --network aries --ranks-per-node 8 --ranks 64,256,1024 --algorithm auto,ssar_split_allgather
  tulle simulate --network gige --fat-tree 16:4 --ranks 64 --algorithm all
  tulle simulate --network 10gbe --slow-link 0:10 --straggler 3:2 --ranks 16
  tulle simulate --ranks 4096 --dimension 2^24 --density 0.1% --algorithm ssar_recursive_double
  tulle simulate --ranks 14 --dimension 16M --k 1% --teams 7 --network cluster.json --json rows.jsonl
  tulle simulate --ranks 8 --dimension 64K --k 1% --calls 100 --algorithm oktopk,spardl
  tulle simulate --trace run.jsonl --network aries --ranks 8,128 --recipe topk:1% 'topk:16/512|qsgd:4' redsync
  tulle simulate --trace resnet110.jsonl --network wan_100mbit --servers 1 --ranks 10 --recipe int8 three_lc:s=1.75

Nothing is measured and nothing is random but the inputs: the same command gives the same times everywhere.
docs/simulation.md says what the model knows, and what a JSON file may hold.
)";

}  // namespace

void add_simulate_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand(
      "simulate", "Run allreduces, or training steps, of up to 4096 ranks on a network that is described");
  command->footer(kExamples);
  const auto flags = std::make_shared<SimulateFlags>();
  add_simulate_flags(*command, *flags);
  command->callback([flags, &action] {
    finish(*flags);
    const std::shared_ptr<JsonLines> json = open_json(flags->comparison, this_job());
    action = [flags, json] {
      return guarded([&] {
        if (!this_job().prints()) return 0;
        if (flags->trace.trace) return simulate_traces(trace_run(*flags), json.get());
        return Simulator(*flags, json.get()).run();
      });
    };
  });
}

}  // namespace tulle::cli
