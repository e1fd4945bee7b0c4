// The subcommands, each in a file of its own.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace tulle::cli {

/// What runs once the whole command line is parsed; gives the exit code.
using Action = std::function<int()>;

/// Each adds itself to `parent` and sets `action` when it is the one that was typed.
void add_list_command(CLI::App& parent, Action& action);
void add_run_command(CLI::App& parent, Action& action);
void add_bench_allreduce_command(CLI::App& parent, Action& action);
void add_simulate_command(CLI::App& parent, Action& action);
void add_bench_select_command(CLI::App& parent, Action& action);
void add_bench_codec_command(CLI::App& parent, Action& action);
void add_bench_exchange_command(CLI::App& parent, Action& action);
void add_bench_gradient_command(CLI::App& parent, Action& action);
void add_encode_command(CLI::App& parent, Action& action);
void add_decode_command(CLI::App& parent, Action& action);
void add_train_linear_command(CLI::App& parent, Action& action);
void add_train_nn_command(CLI::App& parent, Action& action);
void add_predict_command(CLI::App& parent, Action& action);
void add_cluster_command(CLI::App& parent, Action& action);
void add_pca_command(CLI::App& parent, Action& action);
void add_convert_command(CLI::App& parent, Action& action);
void add_generate_command(CLI::App& parent, Action& action);
void add_featurize_text_command(CLI::App& parent, Action& action);
void add_report_command(CLI::App& parent, Action& action);
void add_watch_command(CLI::App& parent, Action& action);
void add_probe_command(CLI::App& parent, Action& action);
void add_explain_command(CLI::App& parent, Action& action);
void add_plan_command(CLI::App& parent, Action& action);

}  // namespace tulle::cli
