#include "nn/run_state.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tulle/base/error.hpp"

namespace tulle::nn {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Evaluation, loss, accuracy, samples)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EpochMetrics, epoch, steps, loss, held_out, seconds, exposed_seconds,
                                                start_seconds, bytes_sent, rate, bytes_received, pushed, pulled,
                                                dropped, workers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RunState, epoch, step_of_epoch, steps, best_loss, epochs_without_gain,
                                                loss_sum, seconds, exposed_seconds, start_seconds, bytes_sent,
                                                bytes_received, pushed, pulled, dropped, epochs)

std::string to_json(const SavedRun& run, const Facts& facts) {
  nlohmann::json json = {
      {"kind", "tulle_nn"}, {"state", run.state}, {"division", run.division}, {"pipeline_bytes", run.pipeline_bytes}};
  for (const auto& [name, value] : facts) json["facts"][name] = value;
  return json.dump();
}

int ranks_on_disk(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string prefix = whole.filename().string() + ".0-of-";
  int found = 0;
  std::error_code code;
  const auto directory = whole.has_parent_path() ? whole.parent_path() : std::filesystem::path(".");
  for (const auto& entry : std::filesystem::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    int ranks = 0;
    if (!name.starts_with(prefix)) continue;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data() + prefix.size(), end, ranks).ptr != end) continue;  // a file that is being written
    if (found != 0) {
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: there are checkpoints of {} and of {} ranks", path, found, ranks));
    }
    found = ranks;
  }
  return found;
}

SavedRun run_from_json(const std::string& text, const Facts& facts, const std::string& path) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.value("kind", "") != "tulle_nn") {
      throw Error(ErrorKind::bad_input, fmt::format("{}: is not a checkpoint of a deep network", path));
    }
    for (const auto& [name, value] : facts) {
      const std::string saved = json.at("facts").value(name, "");
      if (saved == value) continue;
      throw Error(ErrorKind::bad_input, fmt::format("{}: {} was {}, and is {} now", path, name, saved, value));
    }
    return {.state = json.at("state").get<RunState>(),
            .division = json.at("division"),
            .pipeline_bytes = json.at("pipeline_bytes")};
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: is a checkpoint of another tulle: {}", path, error.what()));
  }
}

}  // namespace tulle::nn
