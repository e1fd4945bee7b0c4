#include "cli/nn/nn_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common/numbers.hpp"
#include "measure/machine.hpp"

namespace tulle::cli {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

std::string times(double a, double b) { return b > 0 ? fmt::format("{:.2f}", ratio(a, b)) : "-"; }

}  // namespace

std::string nn_ranks_text(const NnFlags& flags, int ranks) {
  const nn::ServerUse& server = flags.train.server;
  if (server.servers == 0) return fmt::format("{} ranks", ranks);
  return fmt::format("{} server{} and {} workers{}", server.servers, server.servers == 1 ? "" : "s",
                     ranks - server.servers, server.backup > 0 ? fmt::format(" ({} backup)", server.backup) : "");
}

std::string_view nn_batch_norm(const NnFlags& flags) {
  return flags.train.server.servers > 0 ? "own" : nn::to_string(flags.train.buffers);
}

Table nn_epoch_table(const NnFlags& flags) {
  std::vector<Column> columns = {{.title = "epoch"},
                                 {.title = "loss", .width = 8},
                                 {.title = "held-out", .unit = "loss", .width = 8},
                                 {.title = "accuracy", .width = 8},
                                 {.title = "time", .width = 8},
                                 {.title = "waiting", .unit = "exposed", .width = 8},
                                 {.title = "sent", .unit = "per rank", .width = 9}};
  if (flags.train.server.servers > 0) {
    columns.back() = {.title = "pushed", .unit = "a worker", .width = 9};
    columns.push_back({.title = "pulled", .unit = "a worker", .width = 9});
    columns.push_back({.title = "dropped", .unit = "pushes", .width = 8});
  }
  return Table(columns);
}

std::vector<std::string> nn_epoch_cells(const NnFlags& flags, const nn::EpochMetrics& metrics) {
  std::vector<std::string> cells = {fmt::format("{}", metrics.epoch),
                                    fmt::format("{:.4f}", metrics.loss),
                                    fmt::format("{:.4f}", metrics.held_out.loss),
                                    fmt::format("{:.4f}", metrics.held_out.accuracy),
                                    format_seconds(metrics.seconds),
                                    format_seconds(metrics.exposed_seconds),
                                    format_bytes(metrics.bytes_sent)};
  if (flags.train.server.servers > 0) {
    cells.push_back(format_bytes(metrics.bytes_received));
    cells.push_back(fmt::format("{}", metrics.dropped));
  }
  return cells;
}

std::string nn_epoch_json(const NnFlags& flags, const NnRun& run, const nn::EpochMetrics& metrics) {
  const measure::Machine machine = measure::this_machine();
  nlohmann::json object = {
      {"kind", "train_nn"},
      {"data", flags.data.name},
      {"model", flags.network.model},
      {"recipe", run.recipe},
      {"algorithm", run.recipe},  // what the report names a run by
      {"ranks", run.ranks},
      {"transport", run.transport},
      {"overlap", flags.train.overlap},
      {"batch_norm", nn_batch_norm(flags)},
      {"batch", flags.train.batch},
      {"seed", flags.train.seed},
      {"epoch", metrics.epoch},
      {"steps", metrics.steps},
      {"loss", metrics.loss},
      {"accuracy", metrics.held_out.accuracy},
      {"held_out",
       {{"loss", metrics.held_out.loss},
        {"accuracy", metrics.held_out.accuracy},
        {"top5_accuracy", metrics.held_out.top5_accuracy},
        {"samples", metrics.held_out.samples}}},
      {"seconds", metrics.seconds},
      {"exposed_seconds", metrics.exposed_seconds},
      {"communication_seconds", metrics.exposed_seconds},  // the report's name for time that is not computing
      {"start_seconds", metrics.start_seconds},
      {"bytes_sent", metrics.bytes_sent},
      {"rate", metrics.rate},
      {"host", machine.host},
      {"lab", machine.lab},
      {"tulle_version", machine.tulle_version},
      {"timestamp", measure::utc_timestamp()}};
  const nn::ServerUse& server = flags.train.server;
  if (server.servers > 0) {
    object.update({{"servers", server.servers},
                   {"workers", run.ranks - server.servers},
                   {"backup", server.backup},
                   {"staleness", server.staleness},
                   {"reported", metrics.workers},
                   {"bytes_received", metrics.bytes_received},
                   {"pushed", metrics.pushed},
                   {"pulled", metrics.pulled},
                   {"dropped", metrics.dropped}});
  }
  return object.dump();
}

std::string nn_comparison(std::span<const NnRun> runs) {
  const nn::EpochMetrics& first = runs.front().result.epochs.back();
  std::vector<std::vector<std::string>> rows;
  for (const NnRun& run : runs) {
    const nn::EpochMetrics& last = run.result.epochs.back();
    rows.push_back({run.recipe, fmt::format("{:.4f}", last.held_out.accuracy),
                    fmt::format("{:.4f}", last.held_out.loss), format_seconds(last.seconds),
                    format_seconds(last.exposed_seconds), format_bytes(last.bytes_sent),
                    times(first.seconds, last.seconds), times(first.exposed_seconds, last.exposed_seconds),
                    times(first.bytes_sent, last.bytes_sent)});
  }
  Table table({{.title = "recipe", .align = Align::left},
               {.title = "accuracy"},
               {.title = "held-out", .unit = "loss"},
               {.title = "time"},
               {.title = "waiting", .unit = "exposed"},
               {.title = "sent", .unit = "per rank"},
               {.title = "speed-up", .unit = "time"},
               {.title = "speed-up", .unit = "waiting"},
               {.title = "fewer", .unit = "bytes"}});
  table.fit(rows);
  std::string text = table.header();
  for (const auto& row : rows) text += table.row(row);
  return text;
}

}  // namespace tulle::cli
