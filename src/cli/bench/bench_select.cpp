// tulle bench select: compares the selectors on random vectors.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_lines.hpp"
#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "measure/machine.hpp"
#include "measure/selector_comparison.hpp"
#include "tulle/select/selector.hpp"

namespace tulle::cli {
namespace {

struct SelectFlags {
  measure::SelectorComparisonSpec spec;
  std::vector<std::uint64_t> counts{14'700'000, 64'000'000};
  std::vector<measure::Distribution> distributions{measure::Distribution::gaussian, measure::Distribution::heavy};
  std::optional<std::string> json_path;
};

struct Case {
  std::uint64_t count;
  measure::Distribution distribution;
};

std::string heading(const SelectFlags& flags) {
  const measure::Machine machine = measure::this_machine();
  return fmt::format("# tulle {} bench select: f32, {} thread(s); {}, {}; {}\n", machine.tulle_version,
                     flags.spec.threads, machine.cpu, machine.compiler, measure::utc_timestamp()) +
         fmt::format("# median and quartiles of {} rounds in which all take turns (nth_element: 3)\n",
                     flags.spec.repeats) +
         "# passes: time against read_pass, the sum of magnitudes, or accumulate, residual += gradient\n"
         "# speed-up: against std::nth_element on a copy\n";
}

std::vector<std::string> cells(const measure::SelectorRow& row) {
  return {row.name,
          row.detail,
          format_seconds(row.seconds.median),
          format_seconds(row.seconds.q1),
          format_seconds(row.seconds.q3),
          row.ratio ? fmt::format("{:.2f} {}", *row.ratio, row.reference) : "-",
          row.nth_element ? fmt::format("{:.1f}", *row.nth_element) : "-",
          fmt::format("{}", row.selected),
          row.reference.empty() ? ""
          : row.failure.empty() ? "OK"
                                : "FAILED: " + row.failure};
}

std::string table_of(Case bench, const std::vector<measure::SelectorRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const measure::SelectorRow& row : rows) lines.push_back(cells(row));
  Table table({{"selector", "", Align::left},
               {"asked for", "", Align::left},
               {"median"},
               {"q1"},
               {"q3"},
               {"passes", "(times)", Align::left},
               {"speed-up", "(times)"},
               {"selected", "(values)"},
               {"check", "", Align::left}});
  table.fit(lines);
  std::string text = fmt::format("\n{} values, {}\n{}", bench.count, to_string(bench.distribution), table.header());
  for (const std::vector<std::string>& line : lines) text += table.row(line);
  return text;
}

template <class Number>
nlohmann::json or_null(const std::optional<Number>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

std::string json_of(const SelectFlags& flags, Case bench, const measure::SelectorRow& row) {
  const measure::Machine machine = measure::this_machine();
  nlohmann::ordered_json object{{"kind", "select"},
                                {"selector", row.name},
                                {"asked_for", row.detail},
                                {"dimension", bench.count},
                                {"distribution", to_string(bench.distribution)},
                                {"type", "f32"},
                                {"threads", flags.spec.threads},
                                {"seed", flags.spec.seed},
                                {"repeats", flags.spec.repeats},
                                {"selected", row.selected},
                                {"seconds_median", row.seconds.median},
                                {"seconds_q1", row.seconds.q1},
                                {"seconds_q3", row.seconds.q3},
                                {"reference", row.reference},
                                {"ratio", or_null(row.ratio)},
                                {"nth_element_ratio", or_null(row.nth_element)},
                                {"verified", row.failure.empty()},
                                {"host", machine.host},
                                {"cpu", machine.cpu},
                                {"cores", machine.cores},
                                {"compiler", machine.compiler},
                                {"tulle_version", machine.tulle_version},
                                {"git_commit", machine.git_commit},
                                {"timestamp", measure::utc_timestamp()}};
  return object.dump();
}

int run_bench(const SelectFlags& flags, JsonLines* json) {
  print(heading(flags));
  Progress progress("measuring", measure::rounds_of(flags.spec) * flags.counts.size() * flags.distributions.size());
  bool verified = true;
  for (const std::uint64_t count : flags.counts) {
    for (const measure::Distribution distribution : flags.distributions) {
      const std::vector<measure::SelectorRow> rows =
          measure::compare_selectors(flags.spec, count, distribution, &progress);
      progress.clear();
      print(table_of({count, distribution}, rows));
      for (const measure::SelectorRow& row : rows) {
        verified &= row.failure.empty();
        if (json != nullptr) json->append(json_of(flags, {count, distribution}, row));
      }
    }
  }
  return verified ? 0 : 1;
}

std::vector<std::string_view> all_selectors() {
  std::vector<std::string_view> names;
  for (const Selector& row : selectors()) names.push_back(row.name);
  return names;
}

// A list flag whose values replace the defaults.
template <class Value, class Parse>
void add_values(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                std::vector<Value>& target, Parse parse) {
  add_list(command, flag, values, help, [&target, parse](const std::vector<std::string>& texts) {
    target.clear();
    for (const std::string& text : texts) target.push_back(parse(text));
  });
}

void add_flags(CLI::App& command, SelectFlags& flags) {
  measure::SelectorComparisonSpec& spec = flags.spec;
  add_values(command, "--selector", "NAME", "which rows of 'tulle list selectors' are compared (all)", spec.selectors,
             [](const std::string& text) { return selector_from(text).name; });
  add_values(command, "--count", "N", "values in a vector: 14700000, 64M, 2^24 (14700000 64000000)", flags.counts,
             [](const std::string& text) { return std::max<std::uint64_t>(parse_count(text), 1); });
  add_values(command, "--values", "gaussian|heavy", "how they are distributed (both)", flags.distributions,
             [](const std::string& text) { return measure::distribution_from(text); });
  add_values(command, "--density", "0..1", "share that is asked for (0.001 0.01)", spec.densities,
             [](const std::string& text) { return parse_share(text); });
  add_values(command, "--bucket-k", "K", "of each bucket of 512, for bucketed_top_k (1 4 16)", spec.bucket_ks,
             [](const std::string& text) { return std::max<std::uint64_t>(parse_count(text), 1); });
  add_int(command, "--repeats", "timed rounds; the median counts (7)", 1, 10'000, [&](int n) { spec.repeats = n; });
  add_int(command, "--threads", "of one selection; 0 means all cores (1)", 0, 1024, [&](int n) { spec.threads = n; });
  add(command, "--seed", "N", "of the values and the selectors (1)",
      [&](const std::string& text) { spec.seed = parse_count(text); });
  add(command, "--json", "FILE", "append one JSON object per row",
      [&](const std::string& text) { flags.json_path = text; });
}

constexpr const char* kExamples = R"(Examples:
  tulle bench select
  tulle bench select --count 64M --values heavy --selector exact_top_k threshold_filter --density 0.1%
  tulle bench select --count 2^20 --threads 0 --json rows.jsonl
)";

}  // namespace

void add_bench_select_command(CLI::App& parent, Action& action) {
  CLI::App* const command =
      parent.add_subcommand("select", "Compare selectors beside a read pass, after checking what they select");
  command->footer(kExamples);
  const auto flags = std::make_shared<SelectFlags>();
  flags->spec.selectors = all_selectors();
  add_flags(*command, *flags);
  command->callback([flags, &action] {
    std::shared_ptr<JsonLines> json;
    if (flags->json_path) json = told_by("--json", [&] { return std::make_shared<JsonLines>(*flags->json_path); });
    action = [flags, json] { return guarded([&] { return run_bench(*flags, json.get()); }); };
  });
}

}  // namespace tulle::cli
