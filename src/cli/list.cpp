// tulle list: the registries.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/registry.hpp"
#include "tulle/gradient/recipe.hpp"
#include "tulle/select/selector.hpp"

namespace tulle::cli {
namespace {

std::string_view name_of(Needs needs) { return needs == Needs::native_allreduce ? "native_allreduce" : "messages"; }

/// One registry as text: a title for each column, which is also its name in JSON.
struct Listing {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
};

Listing algorithms() {
  Listing listing{{"name", "kind", "exactness", "needs", "paper", "summary"}, {}};
  for (const Algorithm& row : registry()) {
    listing.rows.push_back({std::string(row.name), std::string(to_string(row.kind)),
                            std::string(to_string(row.exactness)), std::string(name_of(row.needs)),
                            std::string(row.paper), std::string(row.summary)});
  }
  return listing;
}

Listing codecs() {
  Listing listing{{"name", "kind", "exactness", "options", "paper", "summary"}, {}};
  for (const IndexCodec& row : index_codecs()) {
    listing.rows.push_back({std::string(row.name), "index", std::string(to_string(Fidelity::exact)), "",
                            std::string(row.paper), std::string(row.summary)});
  }
  for (const ValueCodecRow& row : value_codecs()) {
    listing.rows.push_back({std::string(row.name), "value", std::string(to_string(row.fidelity)),
                            std::string(row.options), std::string(row.paper), std::string(row.summary)});
  }
  return listing;
}

Listing selector_rows() {
  Listing listing{{"name", "accuracy", "needs", "paper", "summary"}, {}};
  for (const Selector& row : selectors()) {
    listing.rows.push_back({std::string(row.name), std::string(to_string(row.accuracy)),
                            std::string(to_string(row.needs)), std::string(row.paper), std::string(row.summary)});
  }
  return listing;
}

Listing recipes() {
  Listing listing{{"name", "paper", "sends", "passes", "gives up", "summary"}, {}};
  for (const gradient::Preset& row : gradient::presets()) {
    listing.rows.push_back({std::string(row.name), std::string(row.paper), std::string(row.sends),
                            std::string(row.passes), std::string(row.gives_up), std::string(row.summary)});
  }
  return listing;
}

/// What can be listed, by the word that is typed.
constexpr std::pair<std::string_view, Listing (*)()> kListings[] = {
    {"algorithms", algorithms}, {"selectors", selector_rows}, {"codecs", codecs}, {"recipes", recipes}};

Listing listing_named(const std::string& name) {
  std::string names;
  for (const auto& [known, listing] : kListings) {
    if (known == name) return listing();
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  throw CLI::ValidationError("what", fmt::format("'{}' cannot be listed; there are {}", name, names));
}

std::string as_table(const Listing& listing) {
  std::vector<Column> columns;
  for (const std::string& title : listing.titles) columns.push_back({title, "", Align::left});
  Table table(columns);
  table.fit(listing.rows);
  std::string text = table.header();
  for (const std::vector<std::string>& row : listing.rows) text += table.row(row);
  return text;
}

std::string as_json(const Listing& listing) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::vector<std::string>& row : listing.rows) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < row.size(); ++i) object[listing.titles[i]] = row[i];
    rows.push_back(object);
  }
  return rows.dump(2) + '\n';
}

struct ListFlags {
  std::string what = "algorithms";
  bool json = false;
};

constexpr const char* kExamples = R"(Examples:
  tulle list
  tulle list selectors
  tulle list codecs --json
  tulle list recipes
)";

}  // namespace

void add_list_command(CLI::App& parent, Action& action) {
  CLI::App* const command =
      parent.add_subcommand("list", "Print the algorithms, selectors, codecs or recipes there are");
  command->footer(kExamples);
  const auto flags = std::make_shared<ListFlags>();
  command->add_option("what", flags->what, "algorithms, selectors, codecs or recipes (algorithms)");
  command->add_flag("--json", flags->json, "as a JSON array");
  command->callback([flags, &action] {
    action = [listing = listing_named(flags->what), flags] {
      if (this_job().prints()) print(flags->json ? as_json(listing) : as_table(listing));
      return 0;
    };
  });
}

}  // namespace tulle::cli
