// tulle plan: which row wins where, over density and number of ranks.

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/tune/call_flags.hpp"
#include "cli/tune/plan_map.hpp"

namespace tulle::cli {
namespace {

struct PlanFlags {
  CallFlags call;
  std::vector<int> ranks = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  std::vector<double> densities = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 0.5};
  bool json = false;
};

MapStyle style_of_output() {
  const bool is_colored = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  return is_colored ? MapStyle::colored : MapStyle::plain;
}

nlohmann::ordered_json as_json(const PlanCell& cell) {
  nlohmann::ordered_json json = {{"ranks", cell.ranks}, {"density", cell.density}};
  if (cell.winner.row != nullptr) {
    json["algorithm"] = cell.winner.row->name;
    json["seconds"] = cell.winner.seconds;
  }
  if (const std::optional<double> speed_up = cell.speed_up()) {
    json["best_dense"] = cell.best_dense.row->name;
    json["dense_seconds"] = cell.best_dense.seconds;
    json["speed_up"] = *speed_up;
  }
  return json;
}

std::string as_json(const std::vector<PlanCell>& cells, const PlanFlags& flags) {
  nlohmann::ordered_json json = {{"network", flags.call.network_name}, {"dimension", flags.call.call.dimension}};
  for (const PlanCell& cell : cells) json["cells"].push_back(as_json(cell));
  return json.dump(2, ' ', true) + "\n";
}

int run(const PlanFlags& flags) {
  const std::vector<PlanCell> cells = plan(flags.call.call, flags.ranks, flags.densities);
  if (flags.json) {
    print(as_json(cells, flags));
    return 0;
  }
  print(fmt::format("# N = {}; {}: {}\n", flags.call.call.dimension, flags.call.network_name,
                    describe(flags.call.call.profile)));
  fmt::print("{}", plan_map(cells, flags.densities, style_of_output()));  // in colours, and of numbers and rows alone
  return 0;
}

void add_plan_flags(CLI::App& command, PlanFlags& flags) {
  add_list(command, "--ranks", "P", "lines of the map (2 4 8 ... 1024)", [&](const auto& texts) {
    flags.ranks.clear();
    for (const std::string& text : texts) flags.ranks.push_back(parse_int("--ranks", text, 2, 1 << 20));
  });
  add_list(command, "--density", "0..1", "columns of the map (1e-5 3e-5 ... 0.5)", [&](const auto& texts) {
    flags.densities.clear();
    for (const std::string& text : texts) flags.densities.push_back(parse_share(text));
  });
  add_call_flags(command, flags.call);
  command.add_flag("--json", flags.json, "as one JSON object, for plotting");
}

constexpr const char* kExamples = R"(Examples:
  tulle plan --dimension 16M --alpha 3e-5 --beta 8.5e-9
  tulle plan --profile cluster.json --ranks 2 8 32 --density 0.1% 1% 10%
  tulle plan --profile cluster.json --value-coding qsgd:bits=4 --json
)";

}  // namespace

void add_plan_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("plan", "Map which algorithm wins, over density and ranks");
  command->footer(kExamples);
  const auto flags = std::make_shared<PlanFlags>();
  add_plan_flags(*command, *flags);
  command->callback([flags, &action] {
    finish(flags->call);
    action = [flags] { return this_job().prints() ? guarded([&] { return run(*flags); }) : 0; };
  });
}

}  // namespace tulle::cli
