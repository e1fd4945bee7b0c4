// tulle run: starts a program on local ranks that find each other by TCP.
#include "cli/run/run.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/run/local_job.hpp"

namespace tulle::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  tulle run -n 4 ./my_program --its-flags
  tulle run -n 4 tulle bench allreduce --dimension 2^20 --density 1%
  tulle run -n 4 -- python3 train.py     # a script for torchrun; -- may mark where the program begins
The program finds TULLE_RANK, TULLE_SIZE, TULLE_ADDRESS and TULLE_JOB, a name that no other job has, in its
environment, which tulle::connect() reads, and what torchrun sets: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
MASTER_ADDR and MASTER_PORT.
)";

constexpr int kMostRanks = 4096;
constexpr double kMostGraceSeconds = 1e6;
constexpr std::string_view kFlagsWithValues[] = {"-n", "--ranks", "--grace"};

}  // namespace

void mark_program(std::vector<std::string>& words) {
  if (words.empty() || words.front() != "run") return;
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    if (!words[i].starts_with('-')) {
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), "--");
      return;
    }
    if (std::ranges::find(kFlagsWithValues, words[i]) != std::end(kFlagsWithValues)) ++i;
  }
}

void add_run_command(CLI::App& parent, Action& action) {
  const auto options = std::make_shared<LocalJobOptions>();
  CLI::App* const command = parent.add_subcommand("run", "Start a program on local ranks, without MPI");
  command->footer(kExamples);
  command->add_option("-n,--ranks", options->ranks, "How many")->required()->check(CLI::Range(1, kMostRanks));
  command
      ->add_option("--grace", options->grace_seconds,
                   "Seconds between asking the ranks to end and killing what is left (10)")
      ->check(CLI::Range(0.0, kMostGraceSeconds));
  command->add_option("program", options->program, "The program and its arguments: from the first word that is no flag")
      ->required();
  command->callback(
      [options, &action] { action = [options] { return guarded([&] { return run_local_job(*options); }); }; });
}

}  // namespace tulle::cli
