// Flags whose values the library reads: its own words about a bad value, under the name of the flag.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <optional>
#include <string>

#include "cli/common/launch.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {

[[noreturn]] inline void reject(const std::string& flag, const std::string& reason) {
  throw CLI::ValidationError(flag, reason);
}

/// What `function` gives; an Error of it becomes CLI::ValidationError.
template <class Function>
auto told_by(const std::string& flag, Function function) {
  try {
    return function();
  } catch (const Error& error) {
    reject(flag, error.what());
  }
}

/// A flag with one value, read by `parse(text)`.
template <class Parse>
CLI::Option* add(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                 Parse parse) {
  return command
      .add_option_function<std::string>(
          flag, [flag, parse](const std::string& text) { told_by(flag, [&] { parse(text); }); }, help)
      ->type_name(values);
}

/// A flag with several values, separated by spaces or commas.
template <class Parse>
CLI::Option* add_list(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                      Parse parse) {
  return command
      .add_option_function<std::vector<std::string>>(
          flag, [flag, parse](const std::vector<std::string>& texts) { told_by(flag, [&] { parse(texts); }); }, help)
      ->type_name(values)
      ->delimiter(',');
}

/// A whole number in the range, or a CLI::ValidationError that says so.
int parse_int(const std::string& flag, const std::string& text, int least, int most);
CLI::Option* add_int(CLI::App& command, const std::string& flag, const std::string& help, int least, int most,
                     std::function<void(int)> store);
/// A number from 0 on.
CLI::Option* add_real(CLI::App& command, const std::string& flag, const std::string& values, const std::string& help,
                      double& number);

/// How the ranks of a command are started, as it was typed.
struct LaunchFlags {
  std::optional<std::string> transport;
  std::optional<int> ranks;
  std::optional<std::string> profile_path;
  std::optional<double> deadline_seconds;
};
void add_launch_flags(CLI::App& command, LaunchFlags& flags);
/// --profile, for commands in which auto chooses.
void add_profile_flag(CLI::App& command, LaunchFlags& flags);
/// What they mean for this job. Throws CLI::ValidationError.
LaunchOptions resolve_launch(const LaunchFlags& flags, const Job& job);

}  // namespace tulle::cli
