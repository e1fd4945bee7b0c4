// The tulle command: parses, then runs one subcommand. Nothing is started before the whole command line is understood.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/common/print.hpp"
#include "cli/common/usage.hpp"
#include "cli/run/run.hpp"
#include "tulle/version.hpp"

namespace {

constexpr const char* kExamples = R"(Examples:
  tulle list
  tulle bench allreduce --dimension 2^20 --density 0.01
  mpirun -n 4 tulle bench allreduce --dimension 2^24 --density 0.1% 1% 10% --summary
)";

// Under a launcher every rank most likely comes to the same conclusion; rank 0 prints it and gives the exit code. Under
// mpirun the others leave with 0, because it ends the job, maybe before the message is out, when the first of them
// gives another.
int stop(const CLI::App& app, const CLI::ParseError& error) {
  const tulle::cli::Job job = tulle::cli::this_job();
  const bool prints = job.prints();
  if (!prints && !job.has_rendezvous) return 0;
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {  // --help, --version
    if (!prints) return 0;
    app.exit(error);
    return std::cout.flush() ? 0 : 1;
  }
  if (!prints) tulle::cli::leave_to_rank_zero();
  tulle::cli::print_error((prints ? "" : fmt::format("rank {}: ", job.rank)) + tulle::cli::explain(app, error));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Sparse collectives for distributed machine learning", "tulle");
  app.set_version_flag("--version", "tulle " TULLE_VERSION);
  app.footer(kExamples);
  app.require_subcommand(1);

  tulle::cli::Action action;
  tulle::cli::add_list_command(app, action);
  tulle::cli::add_run_command(app, action);
  CLI::App* const bench = app.add_subcommand("bench", "Measure");
  bench->require_subcommand(1);
  tulle::cli::add_bench_allreduce_command(*bench, action);
  tulle::cli::add_bench_select_command(*bench, action);
  tulle::cli::add_bench_codec_command(*bench, action);
  tulle::cli::add_bench_exchange_command(*bench, action);
  tulle::cli::add_bench_gradient_command(*bench, action);
  tulle::cli::add_simulate_command(app, action);
  tulle::cli::add_encode_command(app, action);
  tulle::cli::add_decode_command(app, action);
  CLI::App* const train = app.add_subcommand("train", "Train models");
  train->require_subcommand(1);
  tulle::cli::add_train_linear_command(*train, action);
  tulle::cli::add_train_nn_command(*train, action);
  tulle::cli::add_predict_command(app, action);
  tulle::cli::add_cluster_command(app, action);
  tulle::cli::add_pca_command(app, action);
  tulle::cli::add_convert_command(app, action);
  tulle::cli::add_generate_command(app, action);
  CLI::App* const featurize = app.add_subcommand("featurize", "Make sparse rows of other data");
  featurize->require_subcommand(1);
  tulle::cli::add_featurize_text_command(*featurize, action);
  tulle::cli::add_report_command(app, action);
  tulle::cli::add_watch_command(app, action);
  tulle::cli::add_probe_command(app, action);
  tulle::cli::add_explain_command(app, action);
  tulle::cli::add_plan_command(app, action);
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    tulle::cli::mark_program(words);
    std::ranges::reverse(words);  // as CLI11 takes them
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return stop(app, error);
  } catch (const std::exception& error) {  // of a file that a flag names
    tulle::cli::print_error(error.what());
    return 1;
  }
  return tulle::cli::guarded(action);
}
