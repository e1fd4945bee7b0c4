// tulle-nn: the part of the tulle command that is linked with libtorch. `tulle train nn` starts it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/common/launch.hpp"
#include "cli/common/print.hpp"
#include "cli/common/usage.hpp"
#include "cli/nn/nn_command.hpp"
#include "tulle/version.hpp"

namespace {

// As in main.cpp: under a launcher rank 0 speaks for all that have the same to say.
int stop(const CLI::App& app, const CLI::ParseError& error) {
  const tulle::cli::Job job = tulle::cli::this_job();
  const bool prints = job.prints();
  if (!prints && !job.has_rendezvous) return 0;
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return prints ? app.exit(error) : 0;
  if (!prints) tulle::cli::leave_to_rank_zero();
  tulle::cli::print_error((prints ? "" : fmt::format("rank {}: ", job.rank)) + tulle::cli::explain(app, error));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Deep networks", "tulle");
  app.set_version_flag("--version", "tulle " TULLE_VERSION);
  app.require_subcommand(1);
  CLI::App* const train = app.add_subcommand("train", "Train models");
  train->require_subcommand(1);
  tulle::cli::Action action;
  tulle::cli::add_nn_command(*train, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return stop(app, error);
  }
  return action();
}
