#include "cli/common/profile_flags.hpp"

#include <fmt/format.h>

#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "tulle/comm/network.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle::cli {

std::string preset_names() {
  std::string names;
  for (const NetworkPreset& preset : network_presets()) {
    names += fmt::format("{}{}", names.empty() ? "" : "|", preset.name);
  }
  return names;
}

void add_profile_flags(CLI::App& command, ProfileFlags& flags) {
  add(command, "--profile", "FILE", "constants that 'tulle probe -o FILE' measured",
      [&](const std::string& text) { flags.profile_path = text; });
  add(command, "--network", preset_names(), "a named network in place of the profile's (gige)",
      [&](const std::string& text) { flags.network = preset_network(text).name; });
  add(command, "--alpha", "SECONDS", "latency of a message, in place of the profile's",
      [&](const std::string& text) { flags.alpha_seconds = parse_real(text); });
  add(command, "--beta", "SECONDS", "of a byte, in place of the profile's: 8.5e-9 for Gigabit Ethernet",
      [&](const std::string& text) { flags.beta_seconds_per_byte = parse_real(text); });
}

NamedProfile resolve_profile(const ProfileFlags& flags) {
  NamedProfile named;
  if (flags.profile_path) {
    named = {*flags.profile_path, told_by("--profile", [&] { return read_profile(*flags.profile_path).profile; })};
  }
  if (flags.network || !flags.profile_path) {
    const Network network = preset_network(flags.network.value_or("gige"));
    named.profile = network.profile(named.profile);
    named.name += (named.name.empty() ? "" : ", ") + network.name;
  }
  if (flags.alpha_seconds) named.profile.alpha_seconds = *flags.alpha_seconds;
  if (flags.beta_seconds_per_byte) named.profile.beta_seconds_per_byte = *flags.beta_seconds_per_byte;
  if (flags.alpha_seconds || flags.beta_seconds_per_byte) named.name += ", changed by flags";
  return named;
}

std::string describe(const Profile& profile) {
  return fmt::format("alpha {} a message, beta {} a byte ({}/s)", format_seconds(profile.alpha_seconds),
                     format_seconds(profile.beta_seconds_per_byte), format_bytes(1 / profile.beta_seconds_per_byte));
}

}  // namespace tulle::cli
