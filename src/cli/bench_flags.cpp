#include "cli/bench_flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/numbers.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

constexpr std::string_view kAll = "all";

[[noreturn]] void reject(const std::string& flag, const std::string& reason) {
  throw CLI::ValidationError(flag, reason);
}

// The library's own words about a bad value, under the name of the flag.
template <class Function>
auto told_by(const std::string& flag, Function function) {
  try {
    return function();
  } catch (const Error& error) {
    reject(flag, error.what());
  }
}

int parse_int(const std::string& flag, const std::string& text, int least, int most) {
  const std::string allowed = fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  try {
    const std::uint64_t number = parse_count(text);
    if (number >= static_cast<std::uint64_t>(least) && number <= static_cast<std::uint64_t>(most)) {
      return static_cast<int>(number);
    }
  } catch (const Error&) {
  }
  reject(flag, allowed);
}

// A flag with one value, read by `parse(text)`.
template <class Parse>
CLI::Option* add(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                 Parse parse) {
  return command
      .add_option_function<std::string>(
          flag, [flag, parse](const std::string& text) { told_by(flag, [&] { parse(text); }); }, help)
      ->type_name(values);
}

CLI::Option* add_int(CLI::App& command, const std::string& flag, const std::string& help, int least, int most,
                     std::function<void(int)> store) {
  return add(command, flag, fmt::format("{}..{}", least, most), help,
             [=](const std::string& text) { store(parse_int(flag, text, least, most)); });
}

// A flag with several values, separated by spaces or commas.
template <class Parse>
CLI::Option* add_list(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                      Parse parse) {
  return command
      .add_option_function<std::vector<std::string>>(
          flag, [flag, parse](const std::vector<std::string>& texts) { told_by(flag, [&] { parse(texts); }); }, help)
      ->type_name(values)
      ->delimiter(',');
}

bool runs_here(const Algorithm& row, TransportChoice transport) {
  return row.needs == Needs::messages || transport == TransportChoice::mpi;
}

std::vector<std::string_view> names_allowed(TransportChoice transport) {
  std::vector<std::string_view> names = {kAuto};
  for (const Algorithm& row : registry()) {
    if (row.kind == OperationKind::allreduce && runs_here(row, transport)) names.push_back(row.name);
  }
  return names;
}

std::vector<std::string_view> resolve(const std::vector<std::string>& typed, TransportChoice transport) {
  const std::vector<std::string_view> allowed = names_allowed(transport);
  std::vector<std::string_view> names;
  const auto take = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : typed) {
    const auto found = std::find(allowed.begin(), allowed.end(), name);
    if (name == kAll) {
      for (const std::string_view each : allowed) take(each);
    } else if (found != allowed.end()) {
      take(*found);
    } else {
      const std::string_view why = name == "mpi_native" ? "needs mpirun" : "is not an algorithm for allreduce";
      reject("--algorithm", fmt::format("'{}' {}; allowed here are {}, {}", name, why, kAll, fmt::join(allowed, ", ")));
    }
  }
  return names;
}

TransportChoice resolve_transport(const BenchFlags& flags, const Job& job) {
  const TransportChoice natural = job.is_under_mpirun ? TransportChoice::mpi : TransportChoice::threads;
  if (job.is_under_mpirun && !TULLE_HAVE_MPI) {
    reject("--transport", "this tulle was built without MPI: run it without mpirun, over threads or sim");
  }
  const TransportChoice choice = flags.transport ? transport_from(*flags.transport) : natural;
  if (job.is_under_mpirun && choice != TransportChoice::mpi) {
    reject("--transport", fmt::format("'{}' is not mpi, the only value allowed under mpirun", *flags.transport));
  }
  return choice;
}

}  // namespace

void add_bench_flags(CLI::App& command, BenchFlags& flags) {
  RaceSpec& spec = flags.spec;
  add(command, "--dimension", "N", "values in a vector: 16777216, 2^24, 16M, 1e6 (2^20)",
      [&](const std::string& text) { spec.dimension = parse_count(text); });
  add_list(command, "--density", "0..1", "share of non-zeros in each rank's vector (0.001 0.01 0.1)",
           [&](const auto& texts) {
             flags.densities.clear();
             for (const std::string& text : texts) flags.densities.push_back(parse_share(text));
           });
  add(command, "--overlap", "uniform|identical|disjoint|zipf", "how the ranks' indices relate (uniform)",
      [&](const std::string& text) { spec.overlap = overlap_from(text); });
  add(command, "--input", "matching|sparse",
      "give dense rows vectors made dense beforehand, or all rows the same sparse stream (matching)",
      [&](const std::string& text) { spec.input = race_input_from(text); });
  add(command, "--type", "f32|f64|f16|bf16|i32|i64", "of the values (f32)",
      [&](const std::string& text) { spec.type = value_type_from(text); });
  add(command, "--op", "sum|prod|min|max|bit_and|bit_or|bit_xor", "the reduction; bits need integers (sum)",
      [&](const std::string& text) { spec.op = op_from(text); });
  add_list(command, "--algorithm", "NAME|auto|all", "which rows of 'tulle list' race (all)",
           [&](const auto& texts) { flags.algorithm_names = texts; });
  add(command, "--transport", TULLE_HAVE_MPI ? "mpi|threads|sim" : "threads|sim",
      "how messages travel (mpi under mpirun, else threads)", [&](const std::string& text) {
        transport_from(text);
        flags.transport = text;
      });
  add_int(command, "--ranks", "of threads and sim (4)", 1, 65536, [&](int number) { flags.ranks = number; });
  add_int(command, "--repeats", "timed laps; the median counts (9; in sim, where all are equal, 1)", 1, 1000000,
          [&](int number) { flags.repeats = number; });
  add_int(command, "--warmup", "laps before them (2)", 1, 1000000, [&](int number) { spec.warmup = number; });
  add(command, "--seed", "N", "of the inputs (1)", [&](const std::string& text) { spec.seed = parse_count(text); });
  add(command, "--deadline", "SECONDS", "for one allreduce; 0 means the library's default (0)",
      [&](const std::string& text) { spec.deadline_seconds = parse_real(text); });
  command.add_flag("--checksum", spec.checksum, "protect payloads with a CRC-32C");
  add(command, "--json", "FILE", "append one JSON object per row",
      [&](const std::string& text) { flags.json_path = text; });
  command.add_flag("--summary", flags.summary, "end with two sentences that say what was seen");
}

void finish(BenchFlags& flags, const Job& job) {
  flags.launch.transport = resolve_transport(flags, job);
  const bool is_mpi = flags.launch.transport == TransportChoice::mpi;
  if (flags.ranks && is_mpi) reject("--ranks", "is for --transport threads and sim; mpirun -n says how many there are");
  flags.launch.ranks = flags.ranks.value_or(4);
  flags.spec.repeats = flags.repeats.value_or(flags.launch.transport == TransportChoice::sim ? 1 : 9);
  flags.spec.algorithms = resolve(flags.algorithm_names, flags.launch.transport);
  told_by("--op", [&] { flags.spec.op.require_defined_on(flags.spec.type); });
}

}  // namespace tulle::cli
