// tulle cluster and tulle pca: k-means and principal components of sparse rows.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/data_flags.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/linear/csr_file.hpp"
#include "tulle/linear/kmeans.hpp"
#include "tulle/linear/pca.hpp"

namespace tulle::cli {
namespace {

// What both commands have.
struct UnlabelledFlags {
  std::string data_path;
  std::optional<std::string> out_path;
  linear::DataOptions data;
  LaunchFlags launch_flags;
  LaunchOptions launch;
};

template <class Options>
void add_common_flags(CLI::App& command, UnlabelledFlags& flags, Options& options) {
  command.add_option("--data", flags.data_path, "rows; their labels are not used")->required()->type_name("FILE");
  add_data_flags(command, flags.data);
  add_int(command, "--iterations", fmt::format("at most ({})", options.iterations), 1, 1000000,
          [&options](int number) { options.iterations = number; });
  add_real(command, "--tolerance", "SHARE", fmt::format("stop at smaller changes ({})", options.tolerance),
           options.tolerance);
  add(command, "--aggregation", "auto|sparse|dense|ROW", "how sums travel (auto)",
      [&options](const std::string& text) { options.aggregation = text; });
  add(command, "--seed", "N", "of the start (1)",
      [&options](const std::string& text) { options.seed = parse_count(text); });
  add(command, "--out", "FILE", "write the vectors as rows of the binary format",
      [&flags](const std::string& text) { flags.out_path = text; });
  add_launch_flags(command, flags.launch_flags);
}

// Vectors as rows, each with a number for its label.
void write_vectors(const std::string& path, std::span<const float> vectors, std::uint64_t features,
                   std::span<const double> numbers) {
  linear::CsrWriter writer(path);
  for (std::size_t v = 0; v < numbers.size(); ++v) {
    linear::Rows rows;
    for (std::uint64_t i = 0; i < features; ++i) {
      if (vectors[v * features + i] != 0) rows.add(static_cast<std::uint32_t>(i), vectors[v * features + i]);
    }
    rows.end_row(static_cast<float>(numbers[v]));
    writer.add(rows);
  }
  writer.finish(features);
}

Task<linear::Dataset> open_part(Communicator communicator, const UnlabelledFlags& flags) {
  std::optional<linear::Dataset> data;
  const std::exception_ptr failure = failure_of([&] {
    linear::DataOptions options = flags.data;
    options.part = {communicator.rank(), communicator.size()};
    data = open_data(flags.data_path, flags.launch.transport, options, communicator.rank());
  });
  auto told = ifail_together(communicator, failure);
  co_await told;
  co_return *data;
}

struct ClusterFlags : UnlabelledFlags {
  linear::KmeansOptions kmeans;
};

Task<int> cluster_rank(Communicator communicator, const ClusterFlags& flags) {
  linear::Dataset data = co_await open_part(communicator, flags);
  linear::KmeansOptions options = flags.kmeans;
  options.on_iteration = [](int iteration, double inertia) {
    print(fmt::format("iteration {:3}: inertia {:.6g}\n", iteration, inertia));
  };
  const linear::KmeansResult result = co_await linear::kmeans_task(communicator, data, options);
  if (communicator.rank() != 0) co_return 0;
  print(fmt::format("rows of the clusters: {}\n", fmt::join(result.sizes, ", ")));
  if (flags.out_path) write_vectors(*flags.out_path, result.centers, result.features, result.sizes);
  co_return 0;
}

struct PcaFlags : UnlabelledFlags {
  linear::PcaOptions pca;
};

Task<int> pca_rank(Communicator communicator, const PcaFlags& flags) {
  linear::Dataset data = co_await open_part(communicator, flags);
  linear::PcaOptions options = flags.pca;
  options.on_iteration = [](int iteration, const std::vector<double>& variances) {
    print(fmt::format("iteration {:3}: variances {:.6g}\n", iteration, fmt::join(variances, ", ")));
  };
  const linear::PcaResult result = co_await linear::pca_task(communicator, data, options);
  if (communicator.rank() == 0 && flags.out_path) {
    write_vectors(*flags.out_path, result.components, result.features, result.variances);
  }
  co_return 0;
}

template <class Flags, class RankTaskOf>
void run_on_ranks(CLI::App& command, const std::shared_ptr<Flags>& flags, Action& action, RankTaskOf task) {
  command.callback([flags, task, &action] {
    flags->launch = resolve_launch(flags->launch_flags, this_job());
    action = [flags, task] {
      return launch_tasks(flags->launch,
                          [&](Communicator communicator) { return task(std::move(communicator), *flags); });
    };
  });
}

}  // namespace

void add_cluster_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("cluster", "k-means of sparse rows");
  command->footer("Examples:\n  mpirun -np 4 tulle cluster --data spam.tcsr --clusters 20 --out centers.tcsr\n");
  const auto flags = std::make_shared<ClusterFlags>();
  add_int(*command, "--clusters", "how many (8)", 1, 1 << 20,
          [flags](int number) { flags->kmeans.clusters = static_cast<std::uint32_t>(number); });
  add_common_flags(*command, *flags, flags->kmeans);
  run_on_ranks(*command, flags, action, cluster_rank);
}

void add_pca_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("pca", "Principal components of sparse rows");
  command->footer("Examples:\n  mpirun -np 4 tulle pca --data spam.tcsr --components 3 --out components.tcsr\n");
  const auto flags = std::make_shared<PcaFlags>();
  add_int(*command, "--components", "how many (2)", 1, 1 << 16,
          [flags](int number) { flags->pca.components = static_cast<std::uint32_t>(number); });
  command->add_flag("!--no-centering", flags->pca.is_centered, "do not take the mean away");
  add_common_flags(*command, *flags, flags->pca);
  run_on_ranks(*command, flags, action, pca_rank);
}

}  // namespace tulle::cli
