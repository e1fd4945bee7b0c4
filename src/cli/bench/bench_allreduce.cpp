// tulle bench allreduce: compares the rows of the registry, on MPI, threads or the simulator.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/json_lines.hpp"
#include "base/progress.hpp"
#include "cli/bench/bench_flags.hpp"
#include "cli/bench/bench_report.hpp"
#include "cli/bench/summary.hpp"
#include "cli/commands.hpp"
#include "cli/common/print.hpp"

namespace tulle::cli {
namespace {

using RowsByDensity = std::vector<std::vector<measure::Row>>;

BenchRun describe(const BenchFlags& flags, const measure::LocalRanks& ranks) {
  BenchRun run{.spec = flags.spec,
               .transport = std::string(ranks.transport()),
               .ranks = ranks.world_size(),
               .machine = measure::this_machine(),
               .timestamp = measure::utc_timestamp()};
  if (flags.launch.transport == TransportChoice::mpi) run.mpi = mpi_library();
  return run;
}

int exit_code(const RowsByDensity& rows_by_density) {
  const auto is_verified = [](const measure::Row& row) { return row.verified; };
  const bool all_verified = std::all_of(
      rows_by_density.begin(), rows_by_density.end(),
      [&](const std::vector<measure::Row>& rows) { return std::all_of(rows.begin(), rows.end(), is_verified); });
  return all_verified ? 0 : 1;
}

// The leader shows the comparison while it goes on.
int lead(measure::LocalRanks& ranks, const BenchFlags& flags, JsonLines* json) {
  const BenchRun run = describe(flags, ranks);
  const BenchTable table(run);
  print(table.header());
  Progress progress("measuring", measure::calls_of(flags.spec) * flags.densities.size());
  RowsByDensity rows_by_density;
  for (const double density : flags.densities) {
    rows_by_density.push_back(compare(ranks, flags.spec, density, &progress));
    progress.clear();
    print(table.rows(rows_by_density.back()));
    for (const measure::Row& row : rows_by_density.back()) {
      if (json != nullptr) json->append(bench_json(run, row));
    }
  }
  if (flags.summary) print("\n" + summarize(run, rows_by_density));
  return exit_code(rows_by_density);
}

int follow(measure::LocalRanks& ranks, const BenchFlags& flags) {
  for (const double density : flags.densities) compare(ranks, flags.spec, density);
  return 0;
}

int run_bench(const BenchFlags& flags, JsonLines* json) {
  return launch(flags.launch, [&](measure::LocalRanks& ranks) {
    return ranks.leads() ? lead(ranks, flags, json) : follow(ranks, flags);
  });
}

constexpr const char* kExamples = R"(Examples:
  tulle bench allreduce --transport threads --ranks 4 --dimension 2^20
  tulle bench allreduce --transport sim --ranks 64 --density 0.001 --algorithm all
  tulle bench allreduce --transport sim --ranks 6 --dimension 14728266 --k 1% --teams 2
  mpirun -n 4 tulle bench allreduce --dimension 2^24 --density 10% --value-coding qsgd:bits=4
  mpirun -n 4 tulle bench allreduce --dimension 2^24 --density 0.1% 1% 10% --json rows.jsonl --summary
)";

}  // namespace

void add_bench_allreduce_command(CLI::App& parent, Action& action) {
  CLI::App* const command =
      parent.add_subcommand("allreduce", "Compare allreduce algorithms, after checking their sums");
  command->footer(kExamples);
  const auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(*command, *flags);
  command->callback([flags, &action] {
    const Job job = this_job();
    finish(*flags, job);
    const std::shared_ptr<JsonLines> json = open_json(*flags, job);
    action = [flags, json] { return run_bench(*flags, json.get()); };
  });
}

}  // namespace tulle::cli
