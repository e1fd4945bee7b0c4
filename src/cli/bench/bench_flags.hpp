// The flags of `tulle bench allreduce`, checked before anything is started.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_lines.hpp"
#include "cli/common/flags.hpp"
#include "measure/comparison.hpp"

namespace tulle::cli {

struct BenchFlags {
  measure::ComparisonSpec spec{.dimension = std::uint64_t{1} << 20};
  std::vector<double> densities = {0.001, 0.01, 0.1};
  LaunchOptions launch;
  std::optional<std::string> json_path;
  bool summary = false;

  // As they were typed, until finish().
  std::vector<std::string> ks;
  std::vector<std::string> algorithm_names = {"all"};
  LaunchFlags launch_flags;
  std::optional<int> repeats;
};

/// The flags that say what is compared, and on which inputs. They set spec, densities and json_path.
void add_comparison_flags(CLI::App& command, BenchFlags& flags);
/// Adds all flags to `command`. A value that is not allowed throws CLI::ValidationError naming the flag and what is.
void add_bench_flags(CLI::App& command, BenchFlags& flags);

/// What the flags of add_comparison_flags() mean together, for flags.launch. Throws CLI::ValidationError.
void finish_comparison(BenchFlags& flags);
/// What flags mean together: the transport by `job`, the rows that "all" stands for. Throws CLI::ValidationError too.
void finish(BenchFlags& flags, const Job& job);

/// The file of --json, opened by rank 0 before anything is started: one that cannot be written is a bad flag, not a
/// lost measurement. Null where there is none. Throws CLI::ValidationError.
std::shared_ptr<JsonLines> open_json(const BenchFlags& flags, const Job& job);

}  // namespace tulle::cli
