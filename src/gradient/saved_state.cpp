#include "gradient/saved_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_counts.hpp"
#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMagic = "TULLEGRA";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 32, kChecked = 16, kAlignment = 8;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::bad_input, "state of a synchronizer: " + why);
}

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string description_of(const SavedState& state) {
  Json parameters = Json::array();
  for (const SavedParameter& parameter : state.parameters) {
    Json arrays = Json::array();
    for (const SavedArray& array : parameter.arrays) arrays.push_back({array.name, array.values.size()});
    parameters.push_back({{"name", parameter.name},
                          {"size", parameter.size},
                          {"step", parameter.step},
                          {"threshold", parameter.threshold},
                          {"threshold_age", parameter.threshold_age},
                          {"algorithm", parameter.algorithm},
                          {"dense_algorithm", parameter.dense_algorithm},
                          {"arrays", std::move(arrays)}});
  }
  Json object = {{"rank", state.rank},     {"ranks", state.ranks},
                 {"steps", state.steps},   {"local_steps", state.local_steps},
                 {"recipe", state.recipe}, {"parameters", parameters}};
  if (state.run != 0) object["run"] = state.run;
  if (!state.decisions.empty()) object["decisions"] = state.decisions;
  std::string text;
  try {
    text = object.dump();
  } catch (const Json::exception& error) {
    refuse(fmt::format("its names cannot be written: {}", error.what()));
  }
  text.resize(padded(text.size()), ' ');
  return text;
}

std::size_t array_bytes(const SavedState& state) {
  std::size_t bytes = 0;
  for (const SavedParameter& parameter : state.parameters) {
    for (const SavedArray& array : parameter.arrays) bytes += array.values.size_bytes();
  }
  return padded(bytes);
}

// Gives the arrays their places in the bytes after the description.
class ArrayReader {
 public:
  explicit ArrayReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::span<const float> take(std::uint64_t count) {
    if (count > rest_.size() / sizeof(float)) refuse("arrays end early");
    const std::span<const std::byte> taken = rest_.first(count * sizeof(float));
    rest_ = rest_.subspan(taken.size());
    return {reinterpret_cast<const float*>(taken.data()), count};
  }
  void end() const {
    if (rest_.size() >= kAlignment) refuse("bytes are left over after the arrays");
  }

 private:
  std::span<const std::byte> rest_;
};

// A fraction, or a negative number, would become any count.
std::uint64_t count_from(const Json& value) {
  if (!value.is_number_unsigned()) refuse(fmt::format("{} is no count", shown(value)));
  return value.get<std::uint64_t>();
}

SavedParameter parameter_from(const Json& object, ArrayReader& arrays) {
  SavedParameter parameter;
  object.at("name").get_to(parameter.name);
  parameter.size = count_from(object.at("size"));
  parameter.step = count_from(object.at("step"));
  object.at("threshold").get_to(parameter.threshold);
  parameter.threshold_age = count_from(object.at("threshold_age"));
  object.at("algorithm").get_to(parameter.algorithm);
  object.at("dense_algorithm").get_to(parameter.dense_algorithm);
  for (const Json& array : object.at("arrays")) {
    parameter.arrays.push_back({array.at(0).get<std::string>(), arrays.take(count_from(array.at(1)))});
  }
  return parameter;
}

SavedState state_from(const Json& object, std::span<const std::byte> array_bytes) {
  SavedState state;
  ArrayReader arrays(array_bytes);
  state.rank = count_from(object.at("rank"));
  state.ranks = count_from(object.at("ranks"));
  state.steps = count_from(object.at("steps"));
  state.local_steps = count_from(object.at("local_steps"));
  if (object.contains("run")) state.run = count_from(object.at("run"));
  object.at("recipe").get_to(state.recipe);
  if (object.contains("decisions")) object.at("decisions").get_to(state.decisions);
  for (const Json& parameter : object.at("parameters")) state.parameters.push_back(parameter_from(parameter, arrays));
  arrays.end();
  return state;
}

bool are_of_one_job(std::span<const SavedState> states) {
  const SavedState& first = states.front();
  const auto same_parameter = [](const SavedParameter& a, const SavedParameter& b) {
    return a.name == b.name && a.size == b.size && a.step == b.step &&
           std::ranges::equal(a.arrays, b.arrays, [](const SavedArray& one, const SavedArray& other) {
             return one.name == other.name && one.values.size() == other.values.size();
           });
  };
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const SavedState& state = states[rank];
    if (state.rank != rank || state.ranks != states.size() || state.steps != first.steps || state.run != first.run) {
      return false;
    }
    if (!std::ranges::equal(state.parameters, first.parameters, same_parameter)) return false;
  }
  return true;
}

// The sum over old ranks i with i mod ranks = rank, in their order, scaled once.
std::vector<float> sum_of_array(std::span<const SavedState> old, const Reshard& to, std::size_t parameter,
                                std::size_t array) {
  std::vector<float> sum(old.front().parameters[parameter].arrays[array].values.size(), 0.0f);
  for (std::size_t rank = to.rank; rank < old.size(); rank += to.ranks) {
    const std::span<const float> values = old[rank].parameters[parameter].arrays[array].values;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  if (to.factor == 1) return sum;
  for (float& value : sum) value = static_cast<float>(value * to.factor);
  return sum;
}

}  // namespace

bool is_replicated(const std::string& array) { return array == "outer_momentum" || array == "right_factor"; }

Buffer encode_state(const SavedState& state) {
  const std::string description = description_of(state);
  const std::size_t arrays = array_bytes(state);
  Buffer buffer = Buffer::allocate(kHeaderBytes + description.size() + arrays);
  const std::span<std::byte> bytes = buffer.as_mutable<std::byte>();
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  store_at<std::uint32_t>(bytes, 8, kVersion);
  store_at<std::uint64_t>(bytes, 16, bytes.size());
  store_at<std::uint64_t>(bytes, 24, description.size());
  std::memcpy(bytes.data() + kHeaderBytes, description.data(), description.size());
  std::byte* place = bytes.data() + kHeaderBytes + description.size();
  for (const SavedParameter& parameter : state.parameters) {
    for (const SavedArray& array : parameter.arrays) {
      if (!array.values.empty()) std::memcpy(place, array.values.data(), array.values.size_bytes());
      place += array.values.size_bytes();
    }
  }
  std::fill(place, bytes.data() + bytes.size(), std::byte{0});
  store_at<std::uint32_t>(bytes, 12, crc32c(bytes.subspan(kChecked)));
  return buffer;
}

std::uint64_t state_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    refuse("these bytes are none");
  }
  const auto version = load_at<std::uint32_t>(bytes, 8);
  if (version != kVersion) refuse(fmt::format("its version is {}, and this build knows {}", version, kVersion));
  const auto total = load_at<std::uint64_t>(bytes, 16), description = load_at<std::uint64_t>(bytes, 24);
  if (total > bytes.size()) refuse(fmt::format("{} of its {} bytes are missing", total - bytes.size(), total));
  if (total < kHeaderBytes || description > total - kHeaderBytes || total % kAlignment != 0) refuse("it is damaged");
  if (crc32c(bytes.subspan(kChecked, total - kChecked)) != load_at<std::uint32_t>(bytes, 12)) refuse("it is damaged");
  return total;
}

SavedState decode_state(const Buffer& buffer) {
  const std::span<const std::byte> bytes = buffer.bytes();
  const std::uint64_t total = state_bytes(bytes);
  const auto description_bytes = load_at<std::uint64_t>(bytes, 24);
  const std::string_view description(reinterpret_cast<const char*>(bytes.data()) + kHeaderBytes, description_bytes);
  const std::size_t arrays_at = kHeaderBytes + description_bytes;
  try {
    SavedState state = state_from(Json::parse(description), bytes.subspan(arrays_at, total - arrays_at));
    state.bytes.push_back(buffer);
    return state;
  } catch (const Json::exception& error) {
    refuse(fmt::format("its description is not understood: {}", error.what()));
  }
}

SavedState resharded(std::span<const SavedState> old, const Reshard& to) {
  if (old.empty() || !are_of_one_job(old)) {
    refuse("to load on another number of ranks takes the states of all ranks of one run and step, in order");
  }
  SavedState state;
  state.rank = to.rank;
  state.ranks = to.ranks;
  state.steps = old.front().steps;
  state.local_steps = old.front().local_steps;
  state.recipe = old.front().recipe;
  state.bytes = old.front().bytes;
  for (std::size_t place = 0; place < old.front().parameters.size(); ++place) {
    const SavedParameter& first = old.front().parameters[place];
    SavedParameter& parameter = state.parameters.emplace_back();
    parameter.name = first.name;
    parameter.size = first.size;
    parameter.step = first.step;
    for (std::size_t array = 0; array < first.arrays.size(); ++array) {
      parameter.arrays.push_back(first.arrays[array]);
      if (is_replicated(first.arrays[array].name)) continue;
      parameter.arrays.back().values = state.storage.emplace_back(sum_of_array(old, to, place, array));
    }
  }
  return state;
}

}  // namespace tulle::gradient
