#include "nn/run_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_counts.hpp"
#include "tulle/base/error.hpp"

namespace tulle::nn {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Evaluation, loss, accuracy, top5_accuracy, samples)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EpochMetrics, epoch, steps, loss, held_out, seconds, exposed_seconds,
                                                start_seconds, bytes_sent, rate, bytes_received, pushed, pulled,
                                                dropped, workers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RunState, epoch, step_of_epoch, steps, best_loss, epochs_without_gain,
                                                loss_sum, seconds, exposed_seconds, start_seconds, bytes_sent,
                                                bytes_received, pushed, pulled, dropped, epochs)

std::string to_json(const SavedRun& run, const Facts& facts) {
  nlohmann::json json = {{"kind", "tulle_nn"},
                         {"run", run.run},
                         {"state", run.state},
                         {"division", run.division},
                         {"pipeline_bytes", run.pipeline_bytes}};
  for (const auto& [name, value] : facts) json["facts"][name] = value;
  return json.dump();
}

namespace {

constexpr std::string_view kListBegins = ": ", kListGoesOn = ", ";

std::string_view head_of(std::string_view fact) { return fact.substr(0, fact.find(kListBegins)); }

std::vector<std::string_view> list_of(std::string_view fact) {
  std::vector<std::string_view> items;
  const std::size_t begins = fact.find(kListBegins);
  if (begins == fact.npos) return items;
  fact.remove_prefix(begins + kListBegins.size());
  for (std::size_t end = 0; end != fact.npos;) {
    end = fact.find(kListGoesOn);
    items.push_back(fact.substr(0, end));
    if (end != fact.npos) fact.remove_prefix(end + kListGoesOn.size());
  }
  return items;
}

// The first of a list that differs, where there are lists.
std::string difference(const std::string& name, std::string_view saved, std::string_view now) {
  const std::vector<std::string_view> before = list_of(saved), after = list_of(now);
  for (std::size_t i = 0; i < std::max(before.size(), after.size()) && !before.empty(); ++i) {
    const std::string_view was = i < before.size() ? before[i] : "missing",
                           is = i < after.size() ? after[i] : "missing";
    if (was != is) return fmt::format("{} differ: number {} was {}, and is {} now", name, i + 1, was, is);
  }
  return fmt::format("{} was {}, and is {} now", name, head_of(saved), head_of(now));
}

// JSON has no word for what is no number, and null is written in its place.
nlohmann::json parse_with_nan(const std::string& text) {
  using Event = nlohmann::json::parse_event_t;
  return nlohmann::json::parse(text, [](int, Event event, nlohmann::json& value) {
    if (event == Event::value && value.is_null()) value = std::nan("");
    return true;
  });
}

void require_kind(const nlohmann::json& json, const std::string& path) {
  if (json.value("kind", "") == "tulle_nn") return;
  throw Error(ErrorKind::bad_input, fmt::format("{}: is not a checkpoint of a deep network", path));
}

template <class Read>
auto understood(const std::string& path, Read read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: is a checkpoint of another tulle: {}", path, error.what()));
  }
}

}  // namespace

RunStep run_step_of(const CheckpointFile& file, const std::string& path) {
  return understood(path, [&] {
    const nlohmann::json json = parse_with_nan(file.description());
    require_kind(json, path);
    require_counts(json.at("state"), {"steps"}, path);
    return RunStep{.run = json.value("run", std::uint64_t{0}), .step = json.at("state").at("steps")};
  });
}

Generations generations_at(const std::string& path) {
  return read_generations(
      path, [](const std::string& file) { return run_step_of(CheckpointFile::read(*open_file(file)), file); });
}

SavedRun run_from_json(const std::string& text, const Facts& facts, const std::string& path) {
  return understood(path, [&] {
    const nlohmann::json json = parse_with_nan(text);
    require_kind(json, path);
    for (const auto& [name, value] : facts) {
      const std::string saved = json.at("facts").value(name, "");
      if (head_of(saved) == head_of(value)) continue;
      throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, difference(name, saved, value)));
    }
    const nlohmann::json& state = json.at("state");
    require_counts(json, {"pipeline_bytes"}, path);
    require_counts(state, {"epoch", "step_of_epoch", "steps", "epochs_without_gain"}, path);
    for (const nlohmann::json& epoch : state.value("epochs", nlohmann::json::array())) {
      require_counts(epoch, {"epoch", "steps", "workers"}, path);
    }
    SavedRun run{.run = json.value("run", std::uint64_t{0}),
                 .state = state.get<RunState>(),
                 .division = json.at("division"),
                 .pipeline_bytes = json.at("pipeline_bytes")};
    if (run.state.epochs.size() == run.state.epoch) return run;
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: {} epochs are over, and it lists {}", path, run.state.epoch, run.state.epochs.size()));
  });
}

}  // namespace tulle::nn
