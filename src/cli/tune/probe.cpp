// tulle probe: measures a profile on MPI, threads or the simulator.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "base/progress.hpp"
#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "measure/machine.hpp"
#include "tulle/tune/probe.hpp"

namespace tulle::cli {
namespace {

struct ProbeFlags {
  ProbeOptions options;
  LaunchFlags launch_flags;
  LaunchOptions launch;
  std::optional<std::string> output;
  bool json = false;
};

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::string> row_of(std::string_view name, std::string_view per, const Quartiles& spread) {
  const auto text = [&](double value) { return per.empty() ? fmt::format("{:.3g}", value) : format_seconds(value); };
  return {std::string(name), text(spread.median), text(spread.q1), text(spread.q3), std::string(per)};
}

std::string_view unit_of(std::string_view name) {
  for (const ProfileConstant& constant : profile_constants()) {
    if (name.ends_with(constant.name)) return constant.per;
  }
  return "";
}

Rows rows_of(const MeasuredProfile& measured) {
  Rows rows;
  for (const ProfileConstant& constant : profile_constants()) {
    rows.push_back(row_of(constant.name, constant.per,
                          {measured.first_quartile.*constant.field, measured.profile.*constant.field,
                           measured.third_quartile.*constant.field}));
  }
  for (const auto& [name, spread] : measured.also) rows.push_back(row_of(name, unit_of(name), spread));
  return rows;
}

std::string as_table(const MeasuredProfile& measured) {
  const Rows rows = rows_of(measured);
  Table table({{"constant", "", Align::left},
               {"median", ""},
               {"first quartile", ""},
               {"third quartile", ""},
               {"per", "", Align::left}});
  table.fit(rows);
  std::string text = fmt::format("# {} ranks on {} {} over {}\n# {}\n", measured.ranks, measured.nodes,
                                 measured.nodes == 1 ? "node" : "nodes", measured.transport, measured.machine);
  text += table.header();
  for (const std::vector<std::string>& row : rows) text += table.row(row);
  return text;
}

void complete(MeasuredProfile& measured) {
  const measure::Machine machine = measure::this_machine();
  measured.machine = fmt::format("{}: {}, {} cores", machine.host, machine.cpu, machine.cores);
  measured.date = measure::utc_timestamp();
  if (measured.transport == "mpi") measured.mpi = mpi_library();
}

int report(MeasuredProfile measured, const ProbeFlags& flags) {
  complete(measured);
  if (flags.output) write_profile(*flags.output, measured);
  print(flags.json ? profile_text(measured) : as_table(measured));
  if (flags.output && !flags.json) {
    const std::string variable = measured.transport == "mpi" ? fmt::format("TULLE_PROFILE={} or ", *flags.output) : "";
    print(fmt::format("# written to {}: use it with {}--profile\n", *flags.output, variable));
  }
  return 0;
}

// Steps of the probe, told by rank 0.
class ProgressLine {
 public:
  ProbeOptions watch(ProbeOptions options) {
    options.on_progress = [this](std::uint64_t done, std::uint64_t total, std::string_view what) {
      if (!line_) line_.emplace("probing", total);
      line_->advance(done > told_ ? done - told_ : 0, what);
      told_ = done;
    };
    return options;
  }

 private:
  std::optional<Progress> line_;
  std::uint64_t told_ = 0;
};

Task<int> run(const ProbeFlags& flags, Communicator communicator) {
  std::optional<MeasuredProfile> measured;
  {
    ProgressLine line;
    const ProbeOptions options = communicator.rank() == 0 ? line.watch(flags.options) : flags.options;
    Request<MeasuredProfile> request = iprobe(communicator, options);
    measured = co_await request;
  }
  co_return communicator.rank() == 0 ? report(*measured, flags) : 0;
}

void add_probe_flags(CLI::App& command, ProbeFlags& flags) {
  command.add_option("-o,--output", flags.output, "write the profile to this file")->type_name("FILE");
  command.add_flag("--json", flags.json, "print the profile as JSON in place of the table");
  add_int(command, "--rounds", "times that everything is measured; the median counts (5)", 1, 50,
          [&](int number) { flags.options.rounds = number; });
  add(command, "--largest", "BYTES", "of a message, 256 or more (4M)", [&](const std::string& text) {
    flags.options.largest_bytes = parse_count(text);
    if (flags.options.largest_bytes < 256) reject("--largest", fmt::format("'{}' is below 256", text));
  });
  add_launch_flags(command, flags.launch_flags);
}

constexpr const char* kExamples = R"(Measures what a message and what each kernel takes, with all ranks at work.
Prints medians with quartiles. Lines 'alone_...' are of one pair of ranks while the
others look on, lines 'in_cache_...' of kernels on 64 KiB: both for comparison.

Examples:
  mpirun -n 4 tulle probe -o cluster.json
  TULLE_PROFILE=cluster.json mpirun -n 4 tulle bench allreduce
  tulle explain --profile cluster.json --ranks 64 --density 1%
  tulle probe --transport threads --ranks 2 --rounds 20
)";

}  // namespace

void add_probe_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("probe", "Measure the constants of this network and machine");
  command->footer(kExamples);
  const auto flags = std::make_shared<ProbeFlags>();
  add_probe_flags(*command, *flags);
  command->callback([flags, &action] {
    flags->launch = resolve_launch(flags->launch_flags, this_job());
    action = [flags] {
      return launch_tasks(flags->launch,
                          [flags](Communicator communicator) { return run(*flags, std::move(communicator)); });
    };
  });
}

}  // namespace tulle::cli
