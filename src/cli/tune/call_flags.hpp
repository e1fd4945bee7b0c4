// The flags that describe a call which is not made, for `tulle explain` and `tulle plan`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common/profile_flags.hpp"
#include "tulle/tune/planned_call.hpp"

namespace tulle::cli {

struct CallFlags {
  PlannedCall call;
  ProfileFlags network;
  std::string network_name;  ///< after finish()
};

/// All but ranks and density, which a plan has several of.
void add_call_flags(CLI::App& command, CallFlags& flags);
/// Fills in the profile. Throws CLI::ValidationError.
void finish(CallFlags& flags);

}  // namespace tulle::cli
