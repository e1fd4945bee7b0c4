#include "tulle/gradient/training_trace.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_counts.hpp"
#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct MachineField {
  const char* name;
  double Profile::*constant;
};
constexpr std::array kMachineFields = {MachineField{"gamma_dense_seconds", &Profile::gamma_dense_seconds},
                                       MachineField{"gamma_sparse_seconds", &Profile::gamma_sparse_seconds},
                                       MachineField{"gamma_select_seconds", &Profile::gamma_select_seconds},
                                       MachineField{"gamma_delta_vbyte_seconds", &Profile::gamma_delta_vbyte_seconds},
                                       MachineField{"gamma_bitmap_seconds", &Profile::gamma_bitmap_seconds},
                                       MachineField{"gamma_rice_seconds", &Profile::gamma_rice_seconds}};

// What stands before the names of a parameter server's.
constexpr std::string_view kOfServer = "server_";

// One line: takes its fields one by one, and names itself in errors.
class Line {
 public:
  Line(std::string_view text, std::string_view source, int number) : source_(source), number_(number) {
    object_ = json::parse(text, nullptr, false);
    if (!object_.is_object()) refuse("is not a JSON object");
  }

  bool has(const std::string& field) const { return object_.contains(field); }

  double number(const std::string& field, double otherwise) {
    if (!has(field)) return otherwise;
    const json value = take(field);
    const double given = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(given) || given < 0)
      refuse(fmt::format("{} is {}, not a number from 0 on", field, shown(value)));
    return given;
  }
  std::uint64_t count(const char* field) {
    if (!has(field)) return 0;
    const json value = take(field);
    if (!value.is_number_unsigned()) refuse(fmt::format("{} is {}, not a whole number", field, shown(value)));
    return value.get<std::uint64_t>();
  }
  std::string text(const char* field) {
    if (!has(field)) return {};
    const json value = take(field);
    if (!value.is_string()) refuse(fmt::format("{} is {}, not a text", field, shown(value)));
    return value.get<std::string>();
  }
  bool flag(const char* field, bool otherwise) {
    if (!has(field)) return otherwise;
    const json value = take(field);
    if (!value.is_boolean()) refuse(fmt::format("{} is {}, not true or false", field, shown(value)));
    return value.get<bool>();
  }
  Role role() {
    const std::string name = text("role");
    if (name.empty()) return Role::hidden;
    for (const Role each : {Role::hidden, Role::output, Role::small, Role::bias_or_norm}) {
      if (to_string(each) == name) return each;
    }
    refuse(fmt::format("role is '{}'; there are hidden, output, small, bias_or_norm", name));
  }

  /// A field that nobody took is a slip of the pen.
  void end() const {
    if (!object_.empty()) refuse(fmt::format("there is no field '{}'", object_.items().begin().key()));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}, line {}: {}", source_, number_, why));
  }

 private:
  json take(const std::string& field) {
    json value = std::move(object_.at(field));  // a copy would go as deep as its brackets
    object_.erase(field);
    return value;
  }

  std::string source_;
  int number_;
  json object_;
};

void read_machine(Line& line, std::string_view of, Profile& machine) {
  for (const MachineField& field : kMachineFields) {
    double& constant = machine.*field.constant;
    constant = line.number(fmt::format("{}{}", of, field.name), constant);
  }
}

void read_head(Line& line, TrainingTrace& trace) {
  if (line.text("kind") != "trace") line.refuse("kind is not 'trace'");
  trace.model = line.text("model");
  trace.origin = line.text("origin");
  trace.batch = line.number("batch", 0);
  trace.forward_seconds = line.number("forward_seconds", 0);
  trace.overlap = line.flag("overlap", true);
  trace.launch_seconds = line.number("launch_seconds", 0);
  read_machine(line, "", trace.machine);
  read_machine(line, kOfServer, trace.server);
  line.end();
}

TracedParameter read_parameter(Line& line) {
  TracedParameter traced;
  traced.parameter.name = line.text("parameter");
  if (traced.parameter.name.empty()) line.refuse("parameter has no name");
  traced.parameter.size = line.count("values");
  if (traced.parameter.size == 0) line.refuse("values is missing or 0");
  traced.parameter.role = line.role();
  traced.parameter.rows = line.count("rows");
  if (traced.parameter.rows > 0 && traced.parameter.size % traced.parameter.rows != 0) {
    line.refuse(fmt::format("{} rows do not divide {} values", traced.parameter.rows, traced.parameter.size));
  }
  traced.backward_seconds = line.number("backward_seconds", 0);
  traced.row_spread = line.number("row_spread", traced.row_spread);
  if (traced.row_spread > kMostRowSpread) line.refuse(fmt::format("row_spread is above {}", kMostRowSpread));
  line.end();
  return traced;
}

void write_machine(const Profile& machine, std::string_view of, ordered_json& head) {
  const Profile defaults;
  for (const MachineField& field : kMachineFields) {
    const double constant = machine.*field.constant;
    if (constant != defaults.*field.constant) head[fmt::format("{}{}", of, field.name)] = constant;
  }
}

ordered_json json_of(const TracedParameter& traced) {
  ordered_json object = {{"parameter", traced.parameter.name}, {"values", traced.parameter.size}};
  if (traced.parameter.role != Role::hidden) object["role"] = to_string(traced.parameter.role);
  if (traced.parameter.rows > 0) object["rows"] = traced.parameter.rows;
  object["backward_seconds"] = traced.backward_seconds;
  if (traced.row_spread != TracedParameter().row_spread) object["row_spread"] = traced.row_spread;
  return object;
}

}  // namespace

// Here, because the names are part of the format.
std::string_view to_string(Role role) {
  switch (role) {
    case Role::hidden: return "hidden";
    case Role::output: return "output";
    case Role::small: return "small";
    case Role::bias_or_norm: return "bias_or_norm";
  }
  return "unknown";
}

double TrainingTrace::compute_seconds() const {
  double seconds = forward_seconds;
  for (const TracedParameter& traced : parameters) seconds += traced.backward_seconds;
  return seconds;
}

std::uint64_t TrainingTrace::values() const {
  std::uint64_t values = 0;
  for (const TracedParameter& traced : parameters) values += traced.parameter.size;
  return values;
}

TrainingTrace parse_training_trace(std::string_view text, std::string_view source) {
  TrainingTrace trace;
  std::set<std::string> names;
  bool has_head = false;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view words = text.substr(begin, end - begin);
    begin = end + 1;
    number += 1;
    if (words.find_first_not_of(" \t\r") == words.npos) continue;
    Line line(words, source, number);
    if (!std::exchange(has_head, true)) {
      read_head(line, trace);
      continue;
    }
    TracedParameter traced = read_parameter(line);
    if (!names.insert(traced.parameter.name).second) {
      line.refuse(fmt::format("two parameters are called {}", traced.parameter.name));
    }
    trace.parameters.push_back(std::move(traced));
  }
  if (trace.parameters.empty()) throw Error(ErrorKind::bad_input, fmt::format("{}: there are no parameters", source));
  return trace;
}

TrainingTrace read_training_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::getline(file, text, '\0');  // the whole file, and no exception where it is a directory
  if (!file.is_open() || file.bad()) {
    throw Error(ErrorKind::system, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  if (!file.eof()) throw Error(ErrorKind::bad_input, fmt::format("{}: is no text", path));
  return parse_training_trace(text, path);
}

std::string to_text(const TrainingTrace& trace) {
  ordered_json head = {{"kind", "trace"}, {"model", trace.model}};
  if (!trace.origin.empty()) head["origin"] = trace.origin;
  if (trace.batch > 0) head["batch"] = trace.batch;
  head["forward_seconds"] = trace.forward_seconds;
  if (!trace.overlap) head["overlap"] = false;
  if (trace.launch_seconds > 0) head["launch_seconds"] = trace.launch_seconds;
  write_machine(trace.machine, "", head);
  write_machine(trace.server, kOfServer, head);
  std::string text = head.dump() + "\n";
  for (const TracedParameter& traced : trace.parameters) text += json_of(traced).dump() + "\n";
  return text;
}

}  // namespace tulle::gradient
