// The flags of `tulle train nn`, checked before anything is started.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "cli/common/flags.hpp"
#include "tulle/nn/train.hpp"

namespace tulle::cli {

/// A recipe as it was typed, and what it means.
struct NamedRecipe {
  std::string text;
  gradient::Recipe recipe;
};

struct NnFlags {
  nn::DataOptions data;
  nn::NetworkOptions network;
  nn::TrainerOptions train;
  std::vector<NamedRecipe> recipes;  ///< each trains a network of its own
  std::optional<std::string> json_path, trace_path;
  bool shows_report = false;
  LaunchOptions launch;
  std::optional<int> workers;       ///< of a parameter server, where they are said
  std::optional<JoinOptions> join;  ///< where this process waits for a lost worker's place

  // As they were typed, until finish().
  std::optional<NamedRecipe> recipe;
  std::vector<NamedRecipe> compared;
  std::optional<double> rate, momentum, clip_norm, checkpoint_seconds;
  std::optional<std::string> optimizer;
  std::optional<bool> progress_thread, averages_buffers;
  std::optional<int> sequence;
  bool keeps_rate = false;
  std::optional<NamedRecipe> pull;
  LaunchFlags launch_flags;
};

void add_nn_flags(CLI::App& command, NnFlags& flags);
/// What the flags mean together. Throws CLI::ValidationError naming the flag.
void finish(NnFlags& flags, const Job& job);
/// What the flags say. Where they say nothing: AdamW where the recipe takes many local steps, as DiLoCo and SparseLoCo
/// do, and 3LC's momentum where a parameter server codes with an s above 1.
nn::OptimizerOptions optimizer_for(const NnFlags& flags, const gradient::Recipe& recipe);
/// --rate, or what is usual for the network with this recipe: momentum, wherever it is, makes steps longer by 1/(1 −
/// μ), and the usual rate smaller by as much; by half of that where the recipe masks it.
double rate_for(const NnFlags& flags, const gradient::Recipe& recipe);
/// True where the network has running means, of which --batch-norm says whose are measured with.
bool has_batch_norm(const std::string& model);
/// The networks and what they take, for the help.
std::string model_list();

}  // namespace tulle::cli
