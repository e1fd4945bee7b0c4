// Which machine and network a cost is asked for: a measured profile, a named network, or constants typed in.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "tulle/comm/profile.hpp"

namespace tulle::cli {

struct ProfileFlags {
  std::optional<std::string> profile_path;
  std::optional<std::string> network;  ///< a preset
  std::optional<double> alpha_seconds;
  std::optional<double> beta_seconds_per_byte;
};

/// "gige|10gbe|...", for the help of flags.
std::string preset_names();

void add_profile_flags(CLI::App& command, ProfileFlags& flags);

/// A profile and what to call it.
struct NamedProfile {
  std::string name;
  Profile profile;
};
/// What the flags mean, each of them in place of a part of what the one before says: a profile, a network's α and β,
/// α or β alone. Without a profile and a network it is Gigabit Ethernet. Throws CLI::ValidationError.
NamedProfile resolve_profile(const ProfileFlags& flags);

/// "alpha 30 us a message, beta 8.5 ns a byte (118 MB/s)".
std::string describe(const Profile& profile);

}  // namespace tulle::cli
