// `tulle train nn` as tulle-nn has it.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands.hpp"

namespace tulle::cli {

void add_nn_command(CLI::App& parent, Action& action);

}  // namespace tulle::cli
