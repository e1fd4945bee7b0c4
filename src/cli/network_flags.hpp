// Which network and machine a cost is asked for: a measured profile, or constants typed in.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "tulle/comm/profile.hpp"

namespace tulle::cli {

struct NetworkFlags {
  std::optional<std::string> profile_path;
  std::optional<double> alpha_seconds;
  std::optional<double> beta_seconds_per_byte;
};

void add_network_flags(CLI::App& command, NetworkFlags& flags);

/// A profile and what to call it.
struct NamedProfile {
  std::string name;
  Profile profile;
};
/// What the flags mean. Throws CLI::ValidationError.
NamedProfile resolve_network(const NetworkFlags& flags);

/// "alpha 30 us a message, beta 8.5 ns a byte (118 MB/s)".
std::string describe(const Profile& profile);

}  // namespace tulle::cli
