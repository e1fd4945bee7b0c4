// tulle explain: what each row costs in a call, which wins and why.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/tune/call_flags.hpp"
#include "cli/tune/explanation_text.hpp"

namespace tulle::cli {
namespace {

struct ExplainFlags {
  CallFlags call;
  std::vector<double> layers;
  SelectionCost selection{"exact_top_k", 0, 0};
  bool json = false;
};

LayerCall layer_call(const PlannedCall& call) {
  const CostInput input = cost_input(call);
  return {.ranks = call.ranks,
          .density = call.density,
          .value_bytes = input.value_bytes,
          .selected_bytes = input.coded_value_bytes + input.index_bytes,
          .profile = call.profile};
}

int run(ExplainFlags& flags) {
  const PlannedCall& call = flags.call.call;
  const Explanation explanation = explain(call);
  const LayerCall layers = layer_call(call);
  flags.selection.seconds_per_value = call.profile.gamma_select_seconds;
  if (flags.json) {
    nlohmann::ordered_json json = as_json(explanation, flags.call.network_name);
    if (!flags.layers.empty()) json["redsync"] = layers_json(layers, flags.layers, flags.selection);
    print(json.dump(2, ' ', true) + "\n");
    return 0;
  }
  print(as_text(explanation, flags.call.network_name));
  if (!flags.layers.empty()) print(layers_text(layers, flags.layers, flags.selection));
  return 0;
}

void add_explain_flags(CLI::App& command, ExplainFlags& flags) {
  add_int(command, "--ranks", "two or more: one sends nothing (8)", 2, 1 << 20,
          [&](int number) { flags.call.call.ranks = number; });
  add(command, "--density", "0..1", "share of non-zeros in each rank's vector (0.01)",
      [&](const std::string& text) { flags.call.call.density = parse_share(text); });
  add_call_flags(command, flags.call);
  add_list(command, "--layer-bytes", "BYTES", "also RedSync's choice for layers of these sizes: 128K 4M",
           [&](const auto& texts) {
             for (const std::string& text : texts) flags.layers.push_back(static_cast<double>(parse_count(text)));
           });
  add_real(command, "--select-overhead", "SECONDS", "of starting a selection, for --layer-bytes (0)",
           flags.selection.fixed_seconds);
  command.add_flag("--json", flags.json, "as one JSON object");
}

constexpr const char* kExamples =
    R"(Costs are those by which auto chooses. Their parts grow with the number of messages,
with the bytes on the wire and with what kernels compute.

Examples:
  tulle explain --ranks 8 --dimension 16M --density 1% --alpha 3e-5 --beta 8.5e-9
  tulle explain --profile cluster.json --ranks 64 --density 0.1% --index-coding raw
  tulle explain --density 0.1% --layer-bytes 16K 128K 4M --select-overhead 6e-5
)";

}  // namespace

void add_explain_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("explain", "Say what each algorithm costs, which wins, and why");
  command->footer(kExamples);
  const auto flags = std::make_shared<ExplainFlags>();
  add_explain_flags(*command, *flags);
  command->callback([flags, &action] {
    finish(flags->call);
    action = [flags] { return this_job().prints() ? guarded([&] { return run(*flags); }) : 0; };
  });
}

}  // namespace tulle::cli
