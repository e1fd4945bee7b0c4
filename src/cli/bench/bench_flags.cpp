#include "cli/bench/bench_flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/did_you_mean.hpp"
#include "cli/common/numbers.hpp"
#include "collectives/index_choice.hpp"
#include "tulle/base/error.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle::cli {
namespace {

constexpr std::string_view kAll = "all";

bool runs_here(const Algorithm& row, TransportChoice transport) {
  return row.needs == Needs::messages || transport == TransportChoice::mpi;
}

std::vector<std::string_view> names_allowed(const measure::ComparisonSpec& spec, TransportChoice transport) {
  std::vector<std::string_view> names = {kAuto};
  for (const Algorithm& row : registry()) {
    const bool codes = spec.value_coding.coding == ValueCoding::raw || row.codes_values;
    const bool takes_part = row.kind == OperationKind::allreduce && row.takes == spec.takes && codes;
    if (takes_part && runs_here(row, transport)) names.push_back(row.name);
  }
  return names;
}

// Why a row of the registry is left out.
std::string_view why_not(const std::string& name, const measure::ComparisonSpec& spec) {
  for (const Algorithm& row : registry()) {
    if (row.name != name || row.kind != OperationKind::allreduce) continue;
    if (row.takes != spec.takes) return row.takes == Takes::accumulator ? "needs --k" : "does not take --k";
    return row.needs == Needs::native_allreduce ? "needs mpirun" : "sends values as they are";
  }
  return "is not an algorithm for allreduce";
}

std::vector<std::string_view> resolve(const std::vector<std::string>& typed, const measure::ComparisonSpec& spec,
                                      TransportChoice transport) {
  const std::vector<std::string_view> allowed = names_allowed(spec, transport);
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
      const std::string names = fmt::format("{}, {}", kAll, fmt::join(allowed, ", "));
      reject("--algorithm", fmt::format("'{}' {}; allowed here are {}{}", name, why_not(name, spec), names,
                                        did_you_mean(name, names)));
    }
  }
  return names;
}

CodedValues coded_values_from(const std::string& text) {
  for (const CodedValues values : {CodedValues::sums, CodedValues::contributions, CodedValues::both}) {
    if (text == to_string(values)) return values;
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("no coded values are called '{}'; there are sums, contributions, both", text));
}

ResidualMode residual_mode_from(const std::string& text) {
  for (const ResidualMode mode : {ResidualMode::global, ResidualMode::partial, ResidualMode::local}) {
    if (to_string(mode) == text) return mode;
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("no residual mode is called '{}'; there are global, partial, local", text));
}

void add_coding_flags(CLI::App& command, measure::ComparisonSpec& spec) {
  add(command, "--index-coding", "NAME|smallest|auto", "of indices on the wire, see 'tulle list codecs' (auto)",
      [&](const std::string& text) {
        IndexChoice(text, Profile{});  // knows the name, or throws
        spec.index_coding = text;
      });
  add(command, "--value-coding", "NAME[:OPTIONS]", "of sums on the wire, for example qsgd:bits=4 (raw)",
      [&](const std::string& text) { spec.value_coding = parse_value_codec(text); });
  add(command, "--coded-values", "sums|contributions|both", "of owners, of ranks on their way to owners (sums)",
      [&](const std::string& text) { spec.coded_values = coded_values_from(text); });
}

// The rows that select while they communicate.
void add_selection_flags(CLI::App& command, BenchFlags& flags) {
  measure::ComparisonSpec& spec = flags.spec;
  add_list(command, "--k", "K|SHARE", "compare rows that deliver about K values of dense gradients: 147K, 1%",
           [&](const auto& texts) { flags.ks = texts; });
  add_int(command, "--teams", "of spardl; divides the ranks (1)", 1, 65536, [&](int number) { spec.teams = number; });
  add(command, "--team-gather", "r_sag|b_sag|auto", "how teams synchronize (auto)",
      [&](const std::string& text) { spec.team_gather = text; });
  command.add_flag_callback(
      "--published",
      [&] {
        const CallOptions published = spardl_as_published();
        spec.teams = published.teams;
        spec.team_gather = published.team_gather;
      },
      "spardl as its paper's experiments run it: r_sag between two teams");
  add(command, "--residual", "global|partial|local", "what comes back of what is not delivered (global)",
      [&](const std::string& text) { spec.residual = residual_mode_from(text); });
}

// A row under the name of auto tells nothing about auto.
void refuse_forced_row(const std::vector<std::string_view>& algorithms) {
  const char* const forced = std::getenv("TULLE_ALGORITHM");
  if (forced == nullptr || *forced == '\0' || forced == kAuto) return;
  if (std::ranges::find(algorithms, kAuto) == algorithms.end()) return;
  reject("--algorithm", fmt::format("TULLE_ALGORITHM is set and would put {} in the place of auto; unset it", forced));
}

// A number of values, or a share of them.
double density_from(const std::string& text, std::uint64_t dimension) {
  if (text.find_first_of("%.") != std::string::npos) return parse_share(text);
  return static_cast<double>(parse_count(text)) / static_cast<double>(std::max<std::uint64_t>(dimension, 1));
}

}  // namespace

void add_comparison_flags(CLI::App& command, BenchFlags& flags) {
  measure::ComparisonSpec& spec = flags.spec;
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
      [&](const std::string& text) { spec.input = measure::input_form_from(text); });
  add(command, "--type", "f32|f64|f16|bf16|i32|i64", "of the values (f32)",
      [&](const std::string& text) { spec.type = value_type_from(text); });
  add(command, "--op", "sum|prod|min|max|bit_and|bit_or|bit_xor", "the reduction; bits need integers (sum)",
      [&](const std::string& text) { spec.op = op_from(text); });
  add_list(command, "--algorithm", "NAME|auto|all", "which rows of 'tulle list' are compared (all)",
           [&](const auto& texts) { flags.algorithm_names = texts; });
  add_coding_flags(command, spec);
  add_selection_flags(command, flags);
  add(command, "--seed", "N", "of the inputs (1)", [&](const std::string& text) { spec.seed = parse_count(text); });
  add(command, "--json", "FILE", "append one JSON object per row",
      [&](const std::string& text) { flags.json_path = text; });
}

void add_bench_flags(CLI::App& command, BenchFlags& flags) {
  measure::ComparisonSpec& spec = flags.spec;
  add_comparison_flags(command, flags);
  add_launch_flags(command, flags.launch_flags);
  add_profile_flag(command, flags.launch_flags);
  add_int(command, "--data-sets", "that inputs are drawn for, one after the other; each has all repeats (1)", 1, 1000,
          [&](int number) { spec.data_sets = number; });
  add_int(command, "--repeats", "timed repeats; the median counts (9; in sim, where all are equal, 1)", 1, 1000000,
          [&](int number) { flags.repeats = number; });
  add_int(command, "--learn", "calls of auto alone before all repeats, to learn from (0)", 0, 1000000,
          [&](int number) { spec.learn = number; });
  add_int(command, "--warmup", "repeats before them, not timed (2)", 1, 1000000,
          [&](int number) { spec.warmup = number; });
  command.add_flag("--checksum", spec.checksum, "protect payloads with a CRC-32C");
  command.add_flag("--summary", flags.summary, "end with two sentences that say what was seen");
}

void finish_comparison(BenchFlags& flags) {
  if (!flags.ks.empty()) {
    flags.spec.takes = Takes::accumulator;
    if (flags.spec.type != ValueType::f32) reject("--type", "gradients of --k are f32");
    if (flags.spec.op.code() != OpCode::sum) reject("--op", "gradients of --k are summed");
    flags.densities.clear();
    for (const std::string& text : flags.ks) {
      flags.densities.push_back(told_by("--k", [&] { return density_from(text, flags.spec.dimension); }));
      if (flags.densities.back() > 1) reject("--k", fmt::format("'{}' is more than the dimension", text));
    }
  }
  flags.spec.algorithms = resolve(flags.algorithm_names, flags.spec, flags.launch.transport);
  refuse_forced_row(flags.spec.algorithms);
  told_by("--op", [&] { flags.spec.op.require_defined_on(flags.spec.type); });
}

void finish(BenchFlags& flags, const Job& job) {
  flags.launch = resolve_launch(flags.launch_flags, job);
  flags.spec.repeats = flags.repeats.value_or(flags.launch.transport == TransportChoice::sim ? 1 : 9);
  flags.spec.deadline_seconds = flags.launch.deadline_seconds.value_or(0);
  finish_comparison(flags);
}

std::shared_ptr<JsonLines> open_json(const BenchFlags& flags, const Job& job) {
  if (!flags.json_path || !job.prints()) return nullptr;
  return told_by("--json", [&] { return std::make_shared<JsonLines>(*flags.json_path); });
}

}  // namespace tulle::cli
