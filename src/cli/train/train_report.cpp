#include "cli/train/train_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common/numbers.hpp"
#include "measure/machine.hpp"

namespace tulle::cli {
namespace {

std::vector<Column> epoch_columns(bool has_held_out, bool is_running) {
  std::vector<Column> columns = {{.title = "epoch"}};
  if (is_running) {
    columns.push_back({.title = "running", .unit = "objective", .width = 9});
  } else {
    columns.push_back({.title = "objective", .width = 9});
  }
  if (has_held_out) {
    columns.insert(columns.end(), {{.title = "held-out", .unit = "loss", .width = 8},
                                   {.title = "accuracy", .width = 8},
                                   {.title = "AUC", .width = 7}});
  }
  columns.insert(columns.end(), {{.title = "time", .width = 8},
                                 {.title = "waiting", .width = 8},
                                 {.title = "sent", .unit = "per rank", .width = 9}});
  return columns;
}

std::string bytes_text(const linear::EpochMetrics& metrics) {
  return (metrics.has_estimated_bytes ? ">= " : "") + format_bytes(metrics.bytes);
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

EpochTable::EpochTable(const TrainFlags& flags)
    : table_(epoch_columns(flags.test_path || flags.held_out_share > 0, flags.train.solver == linear::Solver::sgd)),
      has_held_out_(flags.test_path || flags.held_out_share > 0),
      has_accuracy_(flags.train.loss != linear::Loss::squares) {}

std::string EpochTable::row(const linear::EpochMetrics& metrics) const {
  std::vector<std::string> cells = {fmt::format("{}", metrics.epoch), fmt::format("{:.5f}", metrics.objective)};
  if (has_held_out_) {
    const linear::Evaluation& held_out = *metrics.held_out;
    cells.insert(cells.end(),
                 {fmt::format("{:.5f}", held_out.loss), has_accuracy_ ? fmt::format("{:.4f}", held_out.accuracy) : "-",
                  held_out.auc ? fmt::format("{:.5f}", *held_out.auc) : "-"});
  }
  cells.insert(cells.end(),
               {format_seconds(metrics.seconds), format_seconds(metrics.communication_seconds), bytes_text(metrics)});
  return table_.row(cells);
}

std::string epoch_json(const TrainFlags& flags, const TrainRun& run, const linear::EpochMetrics& metrics) {
  const measure::Machine machine = measure::this_machine();
  nlohmann::json object = {{"kind", "train_linear"},
                           {"data", flags.data_path},
                           {"model", flags.model_name},
                           {"solver", flags.train.solver == linear::Solver::sgd ? "sgd" : "scd"},
                           {"aggregation", run.aggregation},
                           {"ranks", run.ranks},
                           {"transport", run.transport},
                           {"network", flags.launch.network ? flags.launch.network->name : ""},
                           {"staleness", flags.train.staleness},
                           {"epoch", metrics.epoch},
                           {"steps", metrics.steps},
                           {"objective", metrics.objective},
                           {"objective_is_running", flags.train.solver == linear::Solver::sgd},
                           {"penalty", metrics.penalty},
                           {"seconds", metrics.seconds},
                           {"communication_seconds", metrics.communication_seconds},
                           {"bytes_sent", metrics.bytes},
                           {"bytes_are_estimated", metrics.has_estimated_bytes},
                           {"rate", metrics.rate},
                           {"host", machine.host},
                           {"lab", machine.lab},
                           {"tulle_version", machine.tulle_version},
                           {"timestamp", measure::utc_timestamp()}};
  if (metrics.held_out) {
    object["held_out"] = {{"rows", metrics.held_out->rows}, {"loss", metrics.held_out->loss}};
    if (flags.train.loss != linear::Loss::squares) {
      object["held_out"]["accuracy"] = metrics.held_out->accuracy;
      if (metrics.held_out->auc) object["held_out"]["auc"] = *metrics.held_out->auc;
    }
  }
  return object.dump();
}

std::string comparison(std::span<const TrainRun> runs) {
  const linear::EpochMetrics& first = runs.front().result.epochs.back();
  std::vector<std::vector<std::string>> rows;
  for (const TrainRun& run : runs) {
    const linear::EpochMetrics& last = run.result.epochs.back();
    const double loss = last.held_out ? last.held_out->loss : run.result.objective.value_or(last.objective);
    rows.push_back(
        {run.aggregation, run.result.algorithm, fmt::format("{:.5f}", loss),
         last.held_out && run.result.model.is_classifier() ? fmt::format("{:.4f}", last.held_out->accuracy) : "-",
         format_seconds(last.seconds), format_seconds(last.communication_seconds), bytes_text(last),
         fmt::format("{:.2f}", ratio(first.seconds, last.seconds)),
         fmt::format("{:.2f}", ratio(first.communication_seconds, last.communication_seconds))});
  }
  Table table({{.title = "aggregation", .align = Align::left},
               {.title = "row", .align = Align::left},
               {.title = "loss"},
               {.title = "accuracy"},
               {.title = "time"},
               {.title = "waiting"},
               {.title = "sent", .unit = "per rank"},
               {.title = "speed-up", .unit = "time"},
               {.title = "speed-up", .unit = "waiting"}});
  table.fit(rows);
  std::string text = table.header();
  for (const auto& row : rows) text += table.row(row);
  return text;
}

}  // namespace tulle::cli
