#include "cli/simulate/simulate_trace.hpp"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/common/flags.hpp"
#include "cli/common/network_flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "measure/machine.hpp"

namespace tulle::cli {
namespace {

constexpr const char* kRowFlags[] = {
    "--algorithm",    "--dimension",    "--density",      "--k",     "--overlap",     "--input",    "--type", "--op",
    "--index-coding", "--value-coding", "--coded-values", "--teams", "--team-gather", "--residual", "--calls"};
constexpr const char* kUsualRecipes[] = {"dense", "topk:1%", "topk:16/512|qsgd:4", "redsync", "spardl:1%", "qsgd:4"};

std::string header(const TraceRun& run, const gradient::TrainingTrace& trace) {
  std::string text = fmt::format("# tulle {} simulate: {}, {} values in {} parameters, {} a step computing{}\n",
                                 measure::this_machine().tulle_version, trace.model, trace.values(),
                                 trace.parameters.size(), format_seconds(trace.compute_seconds()),
                                 trace.overlap ? "" : "; exchanges start after back-propagation");
  if (!trace.origin.empty()) text += fmt::format("# times: {}\n", trace.origin);
  text += fmt::format("# {}\n", describe(run.network));
  if (run.flags.servers > 0) text += fmt::format("# ranks: workers; {} more serve\n", run.flags.servers);
  return text +
         "# step: virtual, slowest rank; pack: accumulating and selecting; unpack: adding updates to weights\n"
         "# exposed: waiting for exchanges; speed-up: over dense; data: phantoms have sizes alone\n#\n";
}

std::vector<std::string> cells(int ranks, const measure::TraceRow& row) {
  return {fmt::format("{}", ranks),
          row.recipe,
          format_seconds(row.seconds),
          format_seconds(row.pack_seconds),
          format_seconds(row.unpack_seconds),
          format_seconds(row.exposed_seconds),
          fmt::format("{:.0f}", row.bytes_sent),
          fmt::format("{:.3g}", row.density),
          fmt::format("{:.3g}", row.speedup),
          row.is_phantom ? "phantom" : "real"};
}

std::string table_of(int ranks, const std::vector<measure::TraceRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  lines.reserve(rows.size());
  for (const measure::TraceRow& row : rows) lines.push_back(cells(ranks, row));
  Table table({{"ranks"},
               {"recipe", "", Align::left},
               {"step"},
               {"pack"},
               {"unpack"},
               {"exposed"},
               {"sent/rank", "(B)"},
               {"density", "of update"},
               {"speed-up", "(times)"},
               {"data", "", Align::left}},
              "# ");
  table.fit(lines);
  std::string text = table.header();
  for (const std::vector<std::string>& line : lines) text += table.row(line);
  return text;
}

std::string json_of(const TraceRun& run, const measure::TraceSpec& spec, const measure::TraceRow& row) {
  return nlohmann::ordered_json{{"kind", "trace_step"},
                                {"model", spec.trace.model},
                                {"recipe", row.recipe},
                                {"ranks", spec.options.ranks},
                                {"servers", spec.servers},
                                {"network", run.network.name},
                                {"alpha_seconds", run.network.between_nodes.alpha_seconds},
                                {"beta_seconds_per_byte", run.network.between_nodes.beta_seconds_per_byte},
                                {"ranks_per_node", run.network.ranks_per_node},
                                {"values", spec.trace.values()},
                                {"parameters", spec.trace.parameters.size()},
                                {"overlap", spec.trace.overlap},
                                {"every", row.every},
                                {"seconds", row.seconds},
                                {"compute_seconds", row.compute_seconds},
                                {"pack_seconds", row.pack_seconds},
                                {"unpack_seconds", row.unpack_seconds},
                                {"exposed_seconds", row.exposed_seconds},
                                {"bytes_sent_max", row.bytes_sent},
                                {"bytes_received_max", row.bytes_received},
                                {"density", row.density},
                                {"speedup", row.speedup},
                                {"is_phantom", row.is_phantom},
                                {"seed", spec.options.seed},
                                {"tulle_version", measure::this_machine().tulle_version}}
      .dump();
}

}  // namespace

void add_trace_flags(CLI::App& command, TraceFlags& flags) {
  CLI::Option* const trace =
      add(command, "--trace", "FILE",
          "training steps of the network in FILE in place of rows: 'tulle train nn --trace' records one, "
          "scripts/paper_traces writes the papers'",
          [&](const std::string& path) { flags.trace = gradient::read_training_trace(path); });
  for (const char* const name : kRowFlags) trace->excludes(command.get_option(name));
  // Recipes have commas of their own.
  command
      .add_option_function<std::vector<std::string>>(
          "--recipe",
          [&](const std::vector<std::string>& texts) {
            flags.needs_trace = true;
            for (const std::string& text : texts) told_by("--recipe", [&] { return gradient::parse_recipe(text); });
            flags.recipes = texts;
          },
          "of traces: presets of 'tulle list recipes', or stages: topk:1%|qsgd:4")
      ->type_name("RECIPE");
  add_int(command, "--servers", "of traces: ranks beside the others that hold the model, as 3LC's (0: collectives)", 0,
          1024, [&](int number) {
            flags.needs_trace = true;
            flags.servers = number;
          });
  add_int(command, "--steps", "of traces: whose mean is shown, after two that are not (2)", 1, 100000, [&](int number) {
    flags.needs_trace = true;
    flags.steps = number;
  });
  command.add_flag_callback(
      "--no-overlap",
      [&] {
        flags.needs_trace = true;
        flags.overlap = false;
      },
      "of traces: exchanges start when back-propagation is over");
}

void require_trace(const TraceFlags& flags) {
  if (flags.needs_trace && !flags.trace)
    reject("--trace", "is missing: --recipe, --servers, --steps and --no-overlap need it");
}

int simulate_traces(const TraceRun& run, JsonLines* json) {
  measure::TraceSpec spec{.trace = *run.flags.trace,
                          .recipes = run.flags.recipes,
                          .options = {.seed = run.seed, .network = run.network},
                          .rule = run.rule,
                          .servers = run.flags.servers,
                          .steps = run.flags.steps,
                          .computes = run.computes};
  if (spec.recipes.empty()) spec.recipes.assign(std::begin(kUsualRecipes), std::end(kUsualRecipes));
  spec.trace.overlap = spec.trace.overlap && run.flags.overlap;
  print(header(run, spec.trace));
  Progress progress("simulating", rows_of(spec) * run.ranks.size());
  for (const int ranks : run.ranks) {
    spec.options.ranks = ranks;
    const std::vector<measure::TraceRow> rows = simulate_trace(spec, &progress);
    progress.clear();
    print(table_of(ranks, rows));
    for (const measure::TraceRow& row : rows) {
      if (json != nullptr) json->append(json_of(run, spec, row));
    }
  }
  return 0;
}

}  // namespace tulle::cli
