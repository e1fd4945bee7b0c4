// tulle bench allreduce: races the rows of the registry, on MPI, threads or the simulator.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/json_lines.hpp"
#include "base/progress.hpp"
#include "cli/bench_flags.hpp"
#include "cli/bench_report.hpp"
#include "cli/commands.hpp"
#include "cli/summary.hpp"

namespace tulle::cli {
namespace {

using RowsByDensity = std::vector<std::vector<RaceRow>>;

BenchRun describe(const BenchFlags& flags, const Track& track) {
  BenchRun run{.spec = flags.spec,
               .transport = std::string(track.transport()),
               .ranks = track.ranks(),
               .machine = this_machine(),
               .timestamp = utc_timestamp()};
  if (flags.launch.transport == TransportChoice::mpi) run.mpi = mpi_library();
  return run;
}

int exit_code(const RowsByDensity& races) {
  const auto is_verified = [](const RaceRow& row) { return row.verified; };
  const bool all_verified = std::all_of(races.begin(), races.end(), [&](const std::vector<RaceRow>& rows) {
    return std::all_of(rows.begin(), rows.end(), is_verified);
  });
  return all_verified ? 0 : 1;
}

void print(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// The leader shows the race while it goes on.
int lead(Track& track, const BenchFlags& flags, JsonLines* json) {
  const BenchRun run = describe(flags, track);
  const BenchTable table(run);
  print(table.header());
  Progress progress("racing", laps_of(flags.spec) * flags.densities.size());
  RowsByDensity races;
  for (const double density : flags.densities) {
    races.push_back(race(track, flags.spec, density, &progress));
    progress.clear();
    print(table.rows(races.back()));
    for (const RaceRow& row : races.back()) {
      if (json != nullptr) json->append(bench_json(run, row));
    }
  }
  if (flags.summary) print("\n" + summarize(run, races));
  return exit_code(races);
}

int follow(Track& track, const BenchFlags& flags) {
  for (const double density : flags.densities) race(track, flags.spec, density);
  return 0;
}

int run_bench(const BenchFlags& flags, JsonLines* json) {
  return launch(flags.launch,
                [&](Track& track) { return track.leads() ? lead(track, flags, json) : follow(track, flags); });
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
  CLI::App* const command = parent.add_subcommand("allreduce", "Race allreduce algorithms, after checking their sums");
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
