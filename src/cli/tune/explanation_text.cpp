#include "cli/tune/explanation_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/common/numbers.hpp"
#include "cli/common/profile_flags.hpp"
#include "cli/common/table.hpp"

namespace tulle::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string print(std::vector<Column> columns, const Rows& rows) {
  Table table(std::move(columns));
  table.fit(rows);
  std::string text = table.header();
  for (const std::vector<std::string>& row : rows) text += table.row(row);
  return text;
}

std::string share_text(double part, const RowCost& cost) { return fmt::format("{:.0f} %", 100 * part / cost.seconds); }

// A row that refuses the call costs infinitely much.
std::string seconds_text(double seconds) { return std::isinf(seconds) ? "refuses" : format_seconds(seconds); }

std::string head_text(const Explanation& explanation, std::string_view network) {
  const CostInput& input = explanation.input;
  Profile profile = input.profile;
  profile.beta_seconds_per_byte /= input.ranks_at_a_port();
  return fmt::format(
      "# {} ranks, N = {:.0f}, density {:.3g}: k = {:.0f} on each rank, K = {:.0f} in the sum\n# {}: {}\n", input.ranks,
      input.dimension, input.nnz / input.dimension, input.nnz, input.result_nnz, network, describe(profile));
}

std::string rows_text(const Explanation& explanation) {
  Rows rows;
  for (const RowCost& cost : explanation.rows) {
    if (std::isinf(cost.seconds)) {
      rows.push_back({std::string(cost.row->name), "refuses", "", "", "", ""});
      continue;
    }
    rows.push_back({std::string(cost.row->name), seconds_text(cost.seconds), share_text(cost.alpha_seconds, cost),
                    share_text(cost.beta_seconds, cost), share_text(cost.gamma_seconds, cost),
                    fmt::format("{:.2f}", cost.seconds / explanation.winner().seconds)});
  }
  return print({{"algorithm", "", Align::left},
                {"cost", ""},
                {"messages", ""},
                {"bytes", ""},
                {"computing", ""},
                {"of the best", ""}},
               rows);
}

std::string verdict_text(const Explanation& explanation) {
  const RowCost& winner = explanation.winner();
  std::string text = fmt::format("\n{} wins", winner.row->name);
  if (explanation.rows.size() > 1 && !std::isinf(explanation.rows[1].seconds)) {
    text += fmt::format(", {} is next and takes {:.2f} times as long", explanation.rows[1].row->name,
                        explanation.rows[1].seconds / winner.seconds);
  }
  if (explanation.best_dense.row != nullptr && !std::isinf(explanation.best_dense.seconds)) {
    text += fmt::format("; the best dense row, {}, {:.2f} times", explanation.best_dense.row->name,
                        explanation.best_dense.seconds / winner.seconds);
  }
  const IndexCost& indices = explanation.indices;
  return text + fmt::format(".\nIndices travel as {}: {:.2f} bits each, of which {:.2f} are entropy.\n",
                            to_string(indices.coding), indices.bits, indices.entropy_bits);
}

std::string crossovers_text(const Explanation& explanation) {
  const auto& turns = explanation.crossovers;
  if (turns.empty()) return fmt::format("\n{} wins at every density.\n", explanation.winner().row->name);
  Rows rows = {{"0", fmt::format("{:.3g}", turns.front().density), std::string(turns.front().below->name)}};
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const double end = i + 1 < turns.size() ? turns[i + 1].density : 1;
    rows.push_back(
        {fmt::format("{:.3g}", turns[i].density), fmt::format("{:.3g}", end), std::string(turns[i].above->name)});
  }
  return "\n" + print({{"from density", ""}, {"to", ""}, {"wins", "", Align::left}}, rows);
}

std::string bounds_text(const Explanation& explanation) {
  if (explanation.bounds.empty()) return "";
  Rows rows;
  for (const Bound& bound : explanation.bounds) {
    rows.push_back({std::string(bound.source), format_seconds(bound.seconds),
                    bound.applies ? fmt::format("{:.2f}", explanation.winner().seconds / bound.seconds) : "-",
                    std::string(bound.condition), std::string(bound.formula)});
  }
  return "\n" + print({{"bound", "", Align::left},
                       {"at least", ""},
                       {"winner/bound", ""},
                       {"applies if", "", Align::left},
                       {"formula", "", Align::left}},
                      rows);
}

Json cost_json(const RowCost& cost) {
  if (cost.row == nullptr) return nullptr;
  if (std::isinf(cost.seconds)) return {{"algorithm", cost.row->name}, {"seconds", nullptr}};
  return {{"algorithm", cost.row->name},
          {"seconds", cost.seconds},
          {"alpha_seconds", cost.alpha_seconds},
          {"beta_seconds", cost.beta_seconds},
          {"gamma_seconds", cost.gamma_seconds}};
}

}  // namespace

std::string as_text(const Explanation& explanation, std::string_view network) {
  return head_text(explanation, network) + rows_text(explanation) + verdict_text(explanation) +
         crossovers_text(explanation) + bounds_text(explanation);
}

Json as_json(const Explanation& explanation, std::string_view network) {
  const CostInput& input = explanation.input;
  Json json = {{"network", network},
               {"ranks", input.ranks},
               {"dimension", input.dimension},
               {"density", input.nnz / input.dimension},
               {"nnz", input.nnz},
               {"result_nnz", input.result_nnz}};
  for (const RowCost& cost : explanation.rows) json["rows"].push_back(cost_json(cost));
  json["best_dense"] = cost_json(explanation.best_dense);
  json["crossovers"] = Json::array();
  for (const Crossover& turn : explanation.crossovers) {
    json["crossovers"].push_back({{"density", turn.density}, {"below", turn.below->name}, {"above", turn.above->name}});
  }
  json["bounds"] = Json::array();
  for (const Bound& bound : explanation.bounds) {
    json["bounds"].push_back({{"name", bound.name},
                              {"source", bound.source},
                              {"formula", bound.formula},
                              {"condition", bound.condition},
                              {"seconds", bound.seconds},
                              {"applies", bound.applies}});
  }
  json["indices"] = {{"coding", to_string(explanation.indices.coding)},
                     {"bits", explanation.indices.bits},
                     {"entropy_bits", explanation.indices.entropy_bits}};
  return json;
}

// ---------------------------------------------------------------- layers

std::string layers_text(const LayerCall& call, std::span<const double> layer_bytes, const SelectionCost& selection) {
  Rows rows;
  for (const double bytes : layer_bytes) {
    const LayerCost cost = layer_cost(call, bytes, selection);
    rows.push_back({format_bytes(bytes), format_seconds(cost.select_seconds), format_seconds(cost.sparse_seconds),
                    format_seconds(cost.dense_seconds), cost.sparse_wins() ? "sparse" : "dense"});
  }
  const double turn = turning_bytes(call, selection);
  const std::string where = turn == 0 ? "Sparse synchronization always wins."
                            : std::isinf(turn)
                                ? "Dense synchronization always wins."
                                : fmt::format("Sparse synchronization wins from {} on.", format_bytes(turn));
  return fmt::format("\n# RedSync, equations 1 and 2: layers of which {:.3g} is selected, gathered by {} ranks\n",
                     call.density, call.ranks) +
         print({{"layer", ""}, {"select", ""}, {"sparse", ""}, {"dense", ""}, {"best", "", Align::left}}, rows) +
         where + "\n";
}

Json layers_json(const LayerCall& call, std::span<const double> layer_bytes, const SelectionCost& selection) {
  const double turn = turning_bytes(call, selection);
  Json json = {{"turning_bytes", std::isinf(turn) ? Json(nullptr) : Json(turn)}, {"layers", Json::array()}};
  for (const double bytes : layer_bytes) {
    const LayerCost cost = layer_cost(call, bytes, selection);
    json["layers"].push_back({{"bytes", bytes},
                              {"select_seconds", cost.select_seconds},
                              {"sparse_seconds", cost.sparse_seconds},
                              {"dense_seconds", cost.dense_seconds},
                              {"best", cost.sparse_wins() ? "sparse" : "dense"}});
  }
  return json;
}

}  // namespace tulle::cli
