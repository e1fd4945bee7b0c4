#include "cli/common/usage.hpp"

#include "base/did_you_mean.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace tulle::cli {
namespace {

// The command that was typed, as far as it was understood.
struct Typed {
  const CLI::App* command;
  std::string words;
};

Typed deepest(const CLI::App& app) {
  Typed typed{&app, app.get_name()};
  while (!typed.command->get_subcommands().empty()) {
    typed.command = typed.command->get_subcommands().front();
    typed.words += " " + typed.command->get_name();
  }
  return typed;
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames().front());
  }
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(subcommand->get_name());
  }
  return names;
}

std::string reason(const CLI::App& app, const Typed& typed, const CLI::ParseError& error) {
  std::vector<std::string> unknown = app.remaining(true);
  std::erase(unknown, "--");  // which only says that no flags follow
  const std::vector<std::string> commands = commands_of(*typed.command);
  if (!unknown.empty() && unknown.front().starts_with('-')) {
    const std::string flags = fmt::format("{}", fmt::join(flags_of(*typed.command), ", "));
    const std::string flag = unknown.front().substr(0, unknown.front().find('='));
    return fmt::format("{} is not a flag of '{}'; there are {}{}", unknown.front(), typed.words, flags,
                       did_you_mean(flag, flags));
  }
  if (!unknown.empty() && !commands.empty()) {
    const std::string names = fmt::format("{}", fmt::join(commands, ", "));
    return fmt::format("'{}' is not a command of '{}'; there are {}{}", unknown.front(), typed.words, names,
                       did_you_mean(unknown.front(), names));
  }
  if (!unknown.empty()) return fmt::format("'{}' does not belong to any flag of '{}'", unknown.front(), typed.words);
  if (!commands.empty()) return fmt::format("'{}' needs a command: {}", typed.words, fmt::join(commands, ", "));
  return error.what();
}

}  // namespace

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const Typed typed = deepest(app);
  return fmt::format("{}\n       '{} --help' says more", reason(app, typed, error), typed.words);
}

}  // namespace tulle::cli
