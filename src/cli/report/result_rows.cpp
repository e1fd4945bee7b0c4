#include "cli/report/result_rows.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

using nlohmann::json;

struct Field {
  std::string_view name;
  json::value_t type;  // number_float stands for any number
};

constexpr json::value_t kText = json::value_t::string, kNumber = json::value_t::number_float;
constexpr std::array<Field, 5> kAllreduceFields = {
    {{"algorithm", kText}, {"ranks", kNumber}, {"dimension", kNumber}, {"density", kNumber}, {"type", kText}}};
constexpr std::array<Field, 2> kTrainFields = {{{"epoch", kNumber}, {"seconds", kNumber}}};

std::optional<std::string> check_field(const json& row, const Field& field) {
  const auto found = row.find(field.name);
  const bool wants_text = field.type == kText;
  if (found == row.end()) return fmt::format("'{}' is missing", field.name);
  if (wants_text ? found->is_string() : found->is_number()) return std::nullopt;
  return fmt::format("'{}' is not a {}", field.name, wants_text ? "text" : "number");
}

template <std::size_t kCount>
std::optional<std::string> check_fields(const json& row, const std::array<Field, kCount>& fields) {
  for (const Field& field : fields) {
    if (auto reason = check_field(row, field)) return reason;
  }
  return std::nullopt;
}

std::optional<std::string> check_kind(const json& row) {
  if (!row.contains("kind")) return check_fields(row, kAllreduceFields);  // the first command had no kinds
  if (auto reason = check_field(row, {"kind", kText})) return reason;
  if (row["kind"] == "allreduce") return check_fields(row, kAllreduceFields);
  if (row["kind"] == "train" || row["kind"] == "train_linear") return check_fields(row, kTrainFields);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> check_row(std::string_view line) {
  try {
    const json row = json::parse(line);
    if (!row.is_object()) return "is not a JSON object";
    return check_kind(row);
  } catch (const json::exception& error) {
    return fmt::format("is not JSON: {}", error.what());
  }
}

ResultRows read_result_rows(const std::vector<std::string>& paths) {
  ResultRows result;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    std::uint64_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (auto reason = check_row(line)) {
        result.bad.push_back({.file = path, .line = number, .reason = std::move(*reason)});
      } else {
        result.rows.push_back(std::move(line));
      }
    }
    if (!file.eof()) {
      throw Error(ErrorKind::system, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    }
  }
  return result;
}

}  // namespace tulle::cli
