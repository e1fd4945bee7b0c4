// tulle bench gradient: whole training steps of recipes, on MPI, TCP, threads or the simulator.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_lines.hpp"
#include "base/progress.hpp"
#include "cli/bench/link_speed.hpp"
#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "measure/machine.hpp"
#include "measure/model_shapes.hpp"
#include "measure/recipe_comparison.hpp"

namespace tulle::cli {
namespace {

struct GradientFlags {
  measure::RecipeComparisonSpec spec;
  std::string shapes = "resnet20";
  LaunchOptions launch;
  std::optional<std::string> json_path;

  // As they were typed, until finish().
  LaunchFlags launch_flags;
  std::optional<int> repeats;
};

std::string names_of_models() {
  std::string names;
  for (const measure::ModelShapes& model : measure::model_shapes()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  }
  return names;
}

// "1M,64,10Kx1000": sizes, and how often each.
std::vector<std::uint64_t> sizes_from(const std::string& text) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t times = item.find('x');
    const std::uint64_t size = parse_count(item.substr(0, times));
    sizes.insert(sizes.end(), times == item.npos ? 1 : parse_count(item.substr(times + 1)), size);
    begin = end + 1;
  }
  return sizes;
}

std::vector<gradient::Parameter> parameters_from(const std::string& text) {
  std::vector<gradient::Parameter> parameters = measure::parameters_of_model(text);
  if (!parameters.empty()) return parameters;
  try {
    parameters = measure::parameters_of_sizes(sizes_from(text));
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_input,
                fmt::format("'{}' is none of {}, nor sizes: {}", text, names_of_models(), error.what()));
  }
  return parameters;
}

std::string heading(const GradientFlags& flags, const Communicator& communicator) {
  const measure::Machine machine = measure::this_machine();
  return fmt::format("# tulle {} bench gradient: {}, {} values in {} parameters, {} ranks over {}\n",
                     machine.tulle_version, flags.shapes, measure::values_of(flags.spec.parameters),
                     flags.spec.parameters.size(), communicator.size(), communicator.engine()->transport().name()) +
         fmt::format("# {}, {} cores, {}; {}\n", machine.cpu, machine.cores, machine.compiler,
                     measure::utc_timestamp()) +
         fmt::format(
             "# time: median of {} steps that exchange, slowest rank; recipes take turns, new gradients in each\n",
             flags.spec.repeats) +
         "# ratio: of a training step's time to that of dense in the same turn, local steps shared out\n"
         "# exposed: of that time, waiting for exchanges; check: updates and residuals add up, all ranks the same\n#\n";
}

std::vector<std::string> cells(const measure::RecipeRow& row, const std::optional<double>& seconds_per_byte) {
  return {row.recipe,
          row.seconds ? format_seconds(row.seconds->median) : "-",
          row.seconds ? format_seconds(row.seconds->q1) : "-",
          row.seconds ? format_seconds(row.seconds->q3) : "-",
          row.ratio ? fmt::format("{:.3f}", *row.ratio) : "-",
          row.seconds ? format_seconds(row.exposed_seconds) : "-",
          fmt::format("{}", row.bytes_sent_max),
          seconds_per_byte ? format_seconds(*seconds_per_byte * static_cast<double>(row.bytes_sent_max)) : "-",
          fmt::format("{:.3g}", row.density),
          fmt::format("{}", row.every),
          row.verified ? "OK" : "FAILED: " + row.failure};
}

std::string table_of(const std::vector<measure::RecipeRow>& rows, const std::optional<double>& seconds_per_byte) {
  std::vector<std::vector<std::string>> lines;
  for (const measure::RecipeRow& row : rows) lines.push_back(cells(row, seconds_per_byte));
  Table table({{"recipe", "", Align::left},
               {"median"},
               {"q1"},
               {"q3"},
               {"ratio", "(to dense)"},
               {"exposed"},
               {"sent/rank", "(B)"},
               {"at link", "speed"},
               {"density", "delivered"},
               {"every", "(steps)"},
               {"check", "", Align::left}});
  table.fit(lines);
  std::string text = table.header();
  for (const std::vector<std::string>& line : lines) text += table.row(line);
  return text;
}

template <class Number>
nlohmann::json or_null(const std::optional<Number>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

std::string json_of(const GradientFlags& flags, const Communicator& communicator, const measure::RecipeRow& row) {
  const measure::Machine machine = measure::this_machine();
  const std::string transport = communicator.engine()->transport().name();
  const auto of_seconds = [&](double Quartiles::*field) {
    return row.seconds ? nlohmann::json((*row.seconds).*field) : nlohmann::json();
  };
  nlohmann::json link_seconds;
  if (const auto each = link_seconds_per_byte(flags.launch, communicator)) {
    link_seconds = *each * static_cast<double>(row.bytes_sent_max);
  }
  nlohmann::ordered_json object{{"kind", "gradient"},
                                {"recipe", row.recipe},
                                {"shapes", flags.shapes},
                                {"ranks", communicator.size()},
                                {"transport", transport},
                                {"values", row.values},
                                {"parameters", flags.spec.parameters.size()},
                                {"every", row.every},
                                {"seed", flags.spec.seed},
                                {"repeats", flags.spec.repeats},
                                {"back_propagation_seconds", flags.spec.back_propagation_seconds},
                                {"seconds_median", of_seconds(&Quartiles::median)},
                                {"seconds_q1", of_seconds(&Quartiles::q1)},
                                {"seconds_q3", of_seconds(&Quartiles::q3)},
                                {"seconds_are_virtual", flags.launch.transport == TransportChoice::sim},
                                {"bytes_sent_max", row.bytes_sent_max},
                                {"link_seconds", link_seconds},
                                {"ratio", or_null(row.ratio)},
                                {"exposed_seconds", row.exposed_seconds},
                                {"density", row.density},
                                {"verified", row.verified}};
  if (!row.verified) object["failure"] = row.failure;
  object.update({{"host", machine.host},
                 {"cpu", machine.cpu},
                 {"cores", machine.cores},
                 {"compiler", machine.compiler},
                 {"tulle_version", machine.tulle_version},
                 {"git_commit", machine.git_commit},
                 {"timestamp", measure::utc_timestamp()}});
  if (!machine.lab.empty()) object["lab"] = machine.lab;
  return object.dump();
}

// Rank 0 shows the comparison, all of them have the same rows.
Task<int> run_rank(Communicator communicator, const GradientFlags& flags, JsonLines* json) {
  const bool leads = communicator.rank() == 0;
  if (leads) print(heading(flags, communicator));
  std::optional<Progress> progress;
  if (leads) progress.emplace("measuring", measure::steps_of(flags.spec));
  Task<std::vector<measure::RecipeRow>> comparing =
      measure::compare_recipes(communicator, flags.spec, leads ? &*progress : nullptr);
  const std::vector<measure::RecipeRow> rows = co_await comparing;
  progress.reset();
  if (leads) print(table_of(rows, link_seconds_per_byte(flags.launch, communicator)));
  for (const measure::RecipeRow& row : rows) {
    if (json != nullptr && leads) json->append(json_of(flags, communicator, row));
  }
  co_return std::ranges::all_of(rows, &measure::RecipeRow::verified) ? 0 : 1;
}

void finish(GradientFlags& flags, const Job& job) {
  flags.launch = resolve_launch(flags.launch_flags, job);
  flags.spec.repeats = flags.repeats.value_or(flags.launch.transport == TransportChoice::sim ? 1 : 9);
  flags.spec.deadline_seconds = flags.launch.deadline_seconds.value_or(0);
  flags.spec.parameters = told_by("--shapes", [&] { return parameters_from(flags.shapes); });
  if (flags.spec.recipes.empty()) {
    for (const gradient::Preset& preset : gradient::presets()) flags.spec.recipes.emplace_back(preset.name);
  }
  for (const std::string& recipe : flags.spec.recipes) {
    told_by("--recipe", [&] { return gradient::parse_recipe(recipe); });
  }
  told_by("--trace", [&] {
    if (flags.spec.trace_path.empty() || flags.spec.recipes.size() == 1) return 0;
    throw Error(ErrorKind::bad_input, "is about one recipe: give one --recipe");
  });
}

void add_flags(CLI::App& command, GradientFlags& flags) {
  // Recipes have commas of their own.
  command
      .add_option("--recipe", flags.spec.recipes, "presets of 'tulle list recipes', or stages: topk:1%|qsgd:4 (all)")
      ->type_name("RECIPE");
  add(command, "--shapes", "vgg16|resnet20|lstm|SIZES", "parameters; sizes like 1M,64,10Kx1000 (resnet20)",
      [&](const std::string& text) { flags.shapes = text; });
  add_launch_flags(command, flags.launch_flags);
  add_profile_flag(command, flags.launch_flags);
  add_int(command, "--repeats", "timed steps of each recipe; the median counts (9; in sim 1)", 1, 1000000,
          [&](int number) { flags.repeats = number; });
  add_int(command, "--warmup", "steps before them, which are checked and not timed (2)", 1, 1000000,
          [&](int number) { flags.spec.warmup = number; });
  add(command, "--seed", "N", "of gradients and of everything random (1)",
      [&](const std::string& text) { flags.spec.seed = parse_count(text); });
  add(command, "--back-propagation", "SECONDS", "play so much of it: parameters start one after the other (0)",
      [&](const std::string& text) { flags.spec.back_propagation_seconds = parse_real(text); });
  add(command, "--json", "FILE", "append one JSON object per recipe",
      [&](const std::string& text) { flags.json_path = text; });
  add(command, "--steps", "FILE", "append a line per timed step, with every parameter, for tulle watch and report",
      [&](const std::string& text) { flags.spec.steps_path = text; });
  add(command, "--trace", "FILE", "write the timed steps of one recipe for chrome://tracing and Perfetto",
      [&](const std::string& text) { flags.spec.trace_path = text; });
}

constexpr const char* kExamples = R"(Examples:
  tulle bench gradient --transport threads --ranks 4 --recipe dense topk:1% three_lc
  tulle bench gradient --transport sim --ranks 16 --shapes vgg16 --recipe redsync 'topk:16/512|qsgd:4'
  tulle run -n 4 tulle bench gradient --shapes 10Kx1000
  mpirun -n 4 tulle bench gradient --shapes vgg16 --repeats 9 --json recipes.jsonl
  tulle bench gradient --transport sim --recipe topk:1% --back-propagation 0.005 --trace trace.json --steps steps.jsonl
)";

}  // namespace

void add_bench_gradient_command(CLI::App& parent, Action& action) {
  CLI::App* const command =
      parent.add_subcommand("gradient", "Compare recipes by whole training steps, after checking their updates");
  command->footer(kExamples);
  const auto flags = std::make_shared<GradientFlags>();
  add_flags(*command, *flags);
  command->callback([flags, &action] {
    const Job job = this_job();
    finish(*flags, job);
    const auto json = flags->json_path && job.prints()
                          ? told_by("--json", [&] { return std::make_shared<JsonLines>(*flags->json_path); })
                          : nullptr;
    action = [flags, json] {
      return launch_tasks(flags->launch, [flags, json](Communicator communicator) {
        return run_rank(std::move(communicator), *flags, json.get());
      });
    };
  });
}

}  // namespace tulle::cli
