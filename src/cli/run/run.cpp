// tulle run: starts a program on local ranks that find each other by TCP.
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/run/local_job.hpp"

namespace tulle::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  tulle run -n 4 -- ./my_program --its-flags
  tulle run -n 4 -- tulle bench allreduce --dimension 2^20 --density 1%
  tulle run -n 4 -- python3 train.py     # a script for torchrun
The program finds TULLE_RANK, TULLE_SIZE and TULLE_ADDRESS in its environment, which tulle::connect() reads, and what
torchrun sets: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
)";

constexpr int kMostRanks = 4096;

}  // namespace

void add_run_command(CLI::App& parent, Action& action) {
  const auto options = std::make_shared<LocalJobOptions>();
  CLI::App* const command = parent.add_subcommand("run", "Start a program on local ranks, without MPI");
  command->footer(kExamples);
  command->add_option("-n,--ranks", options->ranks, "How many")->required()->check(CLI::Range(1, kMostRanks));
  command->add_option("program", options->program, "The program and its arguments, after --")->required();
  command->callback(
      [options, &action] { action = [options] { return guarded([&] { return run_local_job(*options); }); }; });
}

}  // namespace tulle::cli
