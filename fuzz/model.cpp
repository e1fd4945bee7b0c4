// Models of `tulle train linear`: one that is read can be asked.
#include "tulle/linear/model.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.hpp"

using namespace tulle;
using namespace tulle::linear;

namespace {

constexpr std::size_t kHeaderBytes = 24;

// A model may have billions of features, and reading one takes their memory: not what is looked for here.
bool is_small(const std::string& file) {
  const std::size_t bytes = load_at<std::uint32_t>(std::as_bytes(std::span(file)), 8);
  if (bytes > file.size() - kHeaderBytes) return true;
  const auto json = nlohmann::json::parse(file.substr(kHeaderBytes, bytes), nullptr, false);
  if (!json.is_object() || !json.contains("features") || !json["features"].is_number()) return true;
  return json["features"].get<double>() < 1 << 16;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size % 8 != 7) fuzz::mend_checksum(file, 12, kHeaderBytes, file.size());
  if (size >= kHeaderBytes && !is_small(file)) return 0;
  fuzz::read_hostile([&] {
    const LinearModel model = load_model(*open_memory("fuzz", file));
    fuzz::require(model.weights.size() == model.vectors() * model.features, "a weight for every feature");
    const std::uint32_t indices[] = {0, 3, 4'000'000'000};
    const float label = model.predict({indices, {}});
    const bool is_known = std::ranges::find(model.classes, label) != model.classes.end();
    fuzz::require(is_known || !model.is_classifier() || label != label, "a label is one of the classes");
  });
  return 0;
}
