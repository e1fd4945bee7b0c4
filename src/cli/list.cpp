// tulle list: the registry.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/table.hpp"
#include "tulle/collectives/algorithm.hpp"

namespace tulle::cli {
namespace {

std::string_view name_of(Needs needs) { return needs == Needs::native_allreduce ? "native_allreduce" : "messages"; }

std::string as_table() {
  std::vector<std::vector<std::string>> rows;
  for (const Algorithm& row : registry()) {
    rows.push_back({std::string(row.name), std::string(to_string(row.kind)), std::string(to_string(row.exactness)),
                    std::string(name_of(row.needs)), std::string(row.paper), std::string(row.summary)});
  }
  Table table({{"name", "", Align::left},
               {"kind", "", Align::left},
               {"exactness", "", Align::left},
               {"needs", "", Align::left},
               {"paper", "", Align::left},
               {"summary", "", Align::left}});
  table.fit(rows);
  std::string text = table.header();
  for (const std::vector<std::string>& row : rows) text += table.row(row);
  return text;
}

std::string as_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Algorithm& row : registry()) {
    rows.push_back({{"name", row.name},
                    {"kind", to_string(row.kind)},
                    {"exactness", to_string(row.exactness)},
                    {"needs", name_of(row.needs)},
                    {"paper", row.paper},
                    {"summary", row.summary}});
  }
  return rows.dump(2) + '\n';
}

}  // namespace

void add_list_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("list", "Print the algorithms there are");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "as a JSON array");
  command->callback([json, &action] {
    action = [json] {
      if (this_job().prints()) fmt::print("{}", *json ? as_json() : as_table());
      return 0;
    };
  });
}

}  // namespace tulle::cli
