// The flags of `tulle train linear`, checked before anything is started.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "cli/common/flags.hpp"
#include "cli/common/network_flags.hpp"
#include "tulle/linear/train.hpp"

namespace tulle::cli {

struct TrainFlags {
  std::string data_path;
  std::optional<std::string> test_path;
  double held_out_share = 0;
  linear::DataOptions data;
  linear::TrainOptions train;
  std::vector<std::string> aggregations = {"auto"};  ///< each trains a model of its own; the last is kept
  std::optional<std::string> model_path;
  std::optional<std::string> json_path;
  LaunchOptions launch;

  // As they were typed, until finish().
  std::string model_name = "logistic";
  NetworkFlags network;
  LaunchFlags launch_flags;
};

void add_train_flags(CLI::App& command, TrainFlags& flags);
/// What the flags of `command` mean together. Throws CLI::ValidationError naming the flag.
void finish(TrainFlags& flags, const CLI::App& command, const Job& job);

}  // namespace tulle::cli
