#include "tulle/collectives/state.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"
#include "tulle/collectives/registry.hpp"

namespace tulle {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::bad_input, "state of an algorithm: " + why); }

// Reads the fields of an object, each once and all of them.
class Fields {
 public:
  Fields(const Json& object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object.is_object()) refuse(fmt::format("'{}' is no object", name_));
  }

  const Json& at(const char* field) {
    const auto found = object_.find(field);
    if (found == object_.end()) refuse(fmt::format("'{}.{}' is missing", name_, field));
    read_ += 1;
    return *found;
  }
  double number(const char* field) {
    const Json& value = at(field);
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      refuse(fmt::format("'{}.{}' is no number", name_, field));
    return value.get<double>();
  }
  std::uint64_t count(const char* field) {
    const Json& value = at(field);
    if (!value.is_number_unsigned()) refuse(fmt::format("'{}.{}' is no count", name_, field));
    return value.get<std::uint64_t>();
  }
  bool flag(const char* field) {
    const Json& value = at(field);
    if (!value.is_boolean()) refuse(fmt::format("'{}.{}' is neither true nor false", name_, field));
    return value.get<bool>();
  }
  std::string text(const char* field) {
    const Json& value = at(field);
    if (!value.is_string()) refuse(fmt::format("'{}.{}' is no text", name_, field));
    return value.get<std::string>();
  }
  /// Throws where there are fields that nobody asked for.
  void end() const {
    if (read_ != object_.size()) refuse(fmt::format("'{}' has fields that are not known", name_));
  }

 private:
  const Json& object_;
  std::string name_;
  std::size_t read_ = 0;
};

std::string name_of(std::uint8_t number) { return number == 0 ? "" : std::string(registry()[number - 1u].name); }

/// 0 for a row that this build does not have.
std::uint8_t number_of(const std::string& name) {
  for (const Algorithm& row : registry()) {
    if (row.name == name) return algorithm_number(row);
  }
  return 0;
}

Json write(const Experience::Row& row) {
  const auto known = std::min<std::size_t>(row.known, Experience::kRemembered);
  return {{"row", name_of(row.number)},
          {"calls", row.calls},
          {"last_call", row.last_call},
          {"known", row.known},
          {"ratios", std::vector<float>(row.ratios.begin(), row.ratios.begin() + static_cast<std::ptrdiff_t>(known))},
          {"correction", row.correction},
          {"expected_seconds", row.expected_seconds}};
}

Experience::Row read_row(const Json& json) {
  Fields fields(json, "experience.rows");
  Experience::Row row;
  row.number = number_of(fields.text("row"));
  row.calls = static_cast<std::uint32_t>(fields.count("calls"));
  row.last_call = fields.count("last_call");
  row.known = static_cast<std::uint32_t>(fields.count("known"));
  const Json& ratios = fields.at("ratios");
  const auto known = std::min<std::size_t>(row.known, Experience::kRemembered);
  const auto is_number = [](const Json& ratio) { return ratio.is_number() && std::isfinite(ratio.get<float>()); };
  if (!ratios.is_array() || ratios.size() != known || !std::ranges::all_of(ratios, is_number)) {
    refuse("'experience.rows.ratios' does not hold as many numbers as are known");
  }
  for (std::size_t i = 0; i < known; ++i) row.ratios[i] = ratios[i].get<float>();
  row.correction = fields.number("correction");
  row.expected_seconds = fields.number("expected_seconds");
  fields.end();
  return row;
}

Json write(const Experience& experience) {
  Json rows = Json::array();
  for (const Experience::Row& row : experience.rows) rows.push_back(write(row));
  return {{"rows", std::move(rows)},
          {"calls", experience.calls},
          {"last_row", name_of(experience.last_row)},
          {"last_is_chosen", experience.last_is_chosen},
          {"last_expected_seconds", experience.last_expected_seconds},
          {"nnz", experience.nnz},
          {"spent_seconds", experience.spent_seconds},
          {"learning_seconds", experience.learning_seconds}};
}

// The last call's time on this rank is left out: who resumes has no such call.
Experience read_experience(const Json& json) {
  Fields fields(json, "experience");
  Experience experience;
  const Json& rows = fields.at("rows");
  if (!rows.is_array()) refuse("'experience.rows' is no list");
  for (const Json& row : rows) {
    const Experience::Row read = read_row(row);
    if (read.number != 0) experience.rows.push_back(read);
  }
  experience.calls = fields.count("calls");
  experience.last_row = number_of(fields.text("last_row"));
  experience.last_is_chosen = fields.flag("last_is_chosen");
  experience.last_expected_seconds = fields.number("last_expected_seconds");
  experience.nnz = fields.number("nnz");
  experience.spent_seconds = fields.number("spent_seconds");
  experience.learning_seconds = fields.number("learning_seconds");
  fields.end();
  return experience;
}

Json write(const TeamGatherState& state) {
  return {{"target", state.target}, {"h", state.h},       {"least_h", state.least_h},
          {"most_h", state.most_h}, {"step", state.step}, {"moved_alike", state.moved_alike}};
}

TeamGatherState read_team_gather(const Json& json) {
  Fields fields(json, "team_gather");
  TeamGatherState state;
  state.target = fields.number("target");
  state.h = fields.number("h");
  state.least_h = fields.number("least_h");
  state.most_h = fields.number("most_h");
  state.step = fields.number("step");
  state.moved_alike = fields.flag("moved_alike");
  fields.end();
  return state;
}

Json write(const OktopkState& state) {
  return {{"k", state.k},
          {"threshold_age", state.threshold_age},
          {"region_age", state.region_age},
          {"local_threshold", state.local_threshold},
          {"global_threshold", state.global_threshold},
          {"cuts", state.cuts}};
}

OktopkState read_oktopk(const Json& json) {
  Fields fields(json, "oktopk");
  OktopkState state;
  state.k = fields.count("k");
  state.threshold_age = fields.count("threshold_age");
  state.region_age = fields.count("region_age");
  state.local_threshold = fields.number("local_threshold");
  state.global_threshold = fields.number("global_threshold");
  const Json& cuts = fields.at("cuts");
  const auto is_count = [](const Json& cut) { return cut.is_number_unsigned(); };
  if (!cuts.is_array() || !std::ranges::all_of(cuts, is_count)) refuse("'oktopk.cuts' is no list of counts");
  state.cuts = cuts.get<std::vector<std::uint64_t>>();
  if (!std::ranges::is_sorted(state.cuts)) refuse("'oktopk.cuts' do not follow one another");
  fields.end();
  return state;
}

}  // namespace

std::uint32_t AlgorithmState::fingerprint() const {
  std::uint32_t hash = 0;
  const auto add = [&](const auto& value) { hash = crc32c(std::as_bytes(std::span(&value, 1)), hash); };
  for (const double value : {team_gather.target, team_gather.h, team_gather.least_h, team_gather.most_h,
                             team_gather.step, oktopk.global_threshold}) {
    add(value);
  }
  for (const std::uint64_t value :
       {std::uint64_t{team_gather.moved_alike}, oktopk.k, oktopk.threshold_age, oktopk.region_age}) {
    add(value);
  }
  return crc32c(std::as_bytes(std::span(oktopk.cuts)), hash);
}

std::string save_state(const AlgorithmState& state) {
  const Json json = {{"version", kVersion},
                     {"calls", state.calls},
                     {"nnz_per_rank", state.nnz_per_rank},
                     {"result_nnz", state.result_nnz},
                     {"experience", write(state.experience)},
                     {"team_gather", write(state.team_gather)},
                     {"oktopk", write(state.oktopk)}};
  return json.dump();
}

AlgorithmState load_state(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) refuse("is not JSON");
  Fields fields(json, "state");
  const std::uint64_t version = fields.count("version");
  if (version != kVersion) refuse(fmt::format("version {} is not known, this library reads {}", version, kVersion));
  AlgorithmState state;
  state.calls = fields.count("calls");
  state.nnz_per_rank = fields.number("nnz_per_rank");
  state.result_nnz = fields.number("result_nnz");
  state.experience = read_experience(fields.at("experience"));
  state.team_gather = read_team_gather(fields.at("team_gather"));
  state.oktopk = read_oktopk(fields.at("oktopk"));
  fields.end();
  return state;
}

}  // namespace tulle
