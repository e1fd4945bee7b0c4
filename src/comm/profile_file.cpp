#include "tulle/comm/profile_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/output_file.hpp"

namespace tulle {
namespace {

using Json = nlohmann::ordered_json;
// The ordered kind copies what it has when it grows, and brackets may be nested so deeply that the stack does not hold
// it.
using ReadJson = nlohmann::json;

constexpr std::string_view kFormat = "tulle profile";
constexpr int kVersion = 1;

constexpr std::array kConstants = {
    ProfileConstant{"alpha_seconds", &Profile::alpha_seconds, "message"},
    ProfileConstant{"beta_seconds_per_byte", &Profile::beta_seconds_per_byte, "byte"},
    ProfileConstant{"node_alpha_seconds", &Profile::node_alpha_seconds, "message"},
    ProfileConstant{"node_beta_seconds_per_byte", &Profile::node_beta_seconds_per_byte, "byte"},
    ProfileConstant{"exchange_factor", &Profile::exchange_factor, ""},
    ProfileConstant{"gamma_sparse_seconds", &Profile::gamma_sparse_seconds, "pair"},
    ProfileConstant{"gamma_dense_seconds", &Profile::gamma_dense_seconds, "value"},
    ProfileConstant{"gamma_delta_vbyte_seconds", &Profile::gamma_delta_vbyte_seconds, "index"},
    ProfileConstant{"gamma_bitmap_seconds", &Profile::gamma_bitmap_seconds, "index"},
    ProfileConstant{"gamma_rice_seconds", &Profile::gamma_rice_seconds, "index"},
    ProfileConstant{"gamma_select_seconds", &Profile::gamma_select_seconds, "value"},
};
static_assert(sizeof(Profile) == kConstants.size() * sizeof(double), "a constant of Profile has no name in files");

Json json_of(const Quartiles& spread) {
  return {{"value", spread.median}, {"first_quartile", spread.q1}, {"third_quartile", spread.q3}};
}

// Reads fields of one object, remembers which, and says which of the others nobody knows.
class Reader {
 public:
  Reader(const ReadJson& object, std::string_view source, std::string path)
      : object_(object), source_(source), path_(std::move(path)) {
    if (!object.is_object()) refuse(path_, "is not an object");
  }

  const ReadJson& at(std::string_view field) {
    read_.emplace(field);
    const auto found = object_.find(field);
    if (found == object_.end()) refuse(name_of(field), "is missing");
    return *found;
  }
  std::string text(std::string_view field) {
    const ReadJson& value = at(field);
    if (!value.is_string()) refuse(name_of(field), "is not a text");
    return value.get<std::string>();
  }
  int count(std::string_view field) {
    const ReadJson& value = at(field);
    if (!value.is_number_unsigned() || value < 1 || value > 1 << 24) refuse(name_of(field), "is not a count from 1 on");
    return value.get<int>();
  }
  double seconds(std::string_view field) {
    const ReadJson& value = at(field);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0) || std::isinf(number)) refuse(name_of(field), "is not a number from 0 on");
    return number;
  }
  Quartiles spread(std::string_view field) {
    Reader inner(at(field), source_, name_of(field));
    const Quartiles spread{inner.seconds("first_quartile"), inner.seconds("value"), inner.seconds("third_quartile")};
    inner.require_all_read();
    if (spread.q1 > spread.median || spread.median > spread.q3) {
      refuse(name_of(field), "is not between its quartiles");
    }
    return spread;
  }
  [[noreturn]] void refuse_field(std::string_view field, std::string_view why) const { refuse(name_of(field), why); }
  Reader object(std::string_view field) { return {at(field), source_, name_of(field)}; }

  void require_all_read() const {
    for (const auto& [field, value] : object_.items()) {
      if (!read_.contains(field)) refuse(name_of(field), "is not known");
    }
  }
  const ReadJson& json() const { return object_; }

  [[noreturn]] void refuse(std::string_view field, std::string_view why) const {
    throw Error(ErrorKind::bad_input, fmt::format("profile {}: field '{}' {}", source_, field, why));
  }

 private:
  std::string name_of(std::string_view field) const {
    return path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field);
  }

  const ReadJson& object_;
  std::string_view source_;
  std::string path_;
  std::set<std::string, std::less<>> read_;
};

// Before anything else is read: what another version means by its fields is not known.
void require_version(Reader& reader) {
  if (reader.text("format") != kFormat) reader.refuse("format", fmt::format("is not '{}'", kFormat));
  const ReadJson& version = reader.at("version");
  if (version != kVersion) {
    // Brackets may be nested so deeply that the stack does not hold the words for them.
    const std::string shown = version.is_structured() ? version.type_name() : version.dump();
    reader.refuse("version", fmt::format("is {}; this tulle reads version {}", shown, kVersion));
  }
}

void read_constants(Reader constants, MeasuredProfile& measured) {
  for (const ProfileConstant& constant : kConstants) {
    const Quartiles spread = constants.spread(constant.name);
    measured.profile.*constant.field = spread.median;
    measured.first_quartile.*constant.field = spread.q1;
    measured.third_quartile.*constant.field = spread.q3;
  }
  if (measured.first_quartile.exchange_factor < 1) constants.refuse_field("exchange_factor", "is below 1");
  constants.require_all_read();
}

ReadJson parse_json(std::string_view text, std::string_view source) {
  try {
    return ReadJson::parse(text);
  } catch (const ReadJson::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("profile {}: is not JSON: {}", source, error.what()));
  }
}

}  // namespace

std::span<const ProfileConstant> profile_constants() { return kConstants; }

std::string profile_text(const MeasuredProfile& measured) {
  Json constants, also = Json::object();
  for (const ProfileConstant& constant : kConstants) {
    constants[constant.name] = json_of({measured.first_quartile.*constant.field, measured.profile.*constant.field,
                                        measured.third_quartile.*constant.field});
  }
  for (const auto& [name, spread] : measured.also) also[name] = json_of(spread);
  const Json file = {{"format", kFormat},
                     {"version", kVersion},
                     {"machine", measured.machine},
                     {"date", measured.date},
                     {"transport", measured.transport},
                     {"mpi", measured.mpi},
                     {"ranks", measured.ranks},
                     {"nodes", measured.nodes},
                     {"constants", constants},
                     {"also", also}};
  return file.dump(2) + "\n";
}

MeasuredProfile parse_profile(std::string_view text, std::string_view source) {
  const ReadJson json = parse_json(text, source);
  Reader reader(json, source, "");
  require_version(reader);
  MeasuredProfile measured;
  measured.machine = reader.text("machine");
  measured.date = reader.text("date");
  measured.transport = reader.text("transport");
  measured.mpi = reader.text("mpi");
  measured.ranks = reader.count("ranks");
  measured.nodes = reader.count("nodes");
  read_constants(reader.object("constants"), measured);
  Reader also = reader.object("also");
  for (const auto& [name, value] : also.json().items()) measured.also[name] = also.spread(name);
  reader.require_all_read();
  return measured;
}

MeasuredProfile read_profile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::getline(file, text, '\0');  // the whole file, and no exception where it is a directory
  if (!file.is_open() || file.bad() || !file.eof()) {
    throw Error(ErrorKind::system, fmt::format("profile {}: cannot be read: {}", path, std::strerror(errno)));
  }
  return parse_profile(text, path);
}

void write_profile(const std::string& path, const MeasuredProfile& measured) {
  const std::string text = profile_text(measured);
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tulle
