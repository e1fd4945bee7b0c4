// tulle generate: data like that of SparCML's Table 1, from a seed.

#include "tulle/linear/generate.hpp"

#include <fmt/format.h>

#include <memory>

#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/launch.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "tulle/linear/csr_file.hpp"

namespace tulle::cli {
namespace {

constexpr std::uint64_t kRowsOfTask = 512;

struct GenerateFlags {
  linear::GenerateOptions options;
  std::uint64_t rows = 100'000, first_row = 0;
  std::string path;
  int threads = 0;
};

int generate(const GenerateFlags& flags) {
  linear::CsrWriter writer(flags.path);
  const auto tasks = static_cast<std::size_t>(4 * (flags.threads > 0 ? flags.threads : default_threads()));
  Progress progress("generating", flags.rows);
  for (std::uint64_t done = 0; done < flags.rows;) {
    std::vector<linear::Rows> made(tasks);
    parallel_for(flags.threads, tasks, [&](std::size_t task) {
      const std::uint64_t first = std::min(flags.rows, done + task * kRowsOfTask);
      const std::uint64_t count = std::min(kRowsOfTask, flags.rows - first);
      made[task] = linear::generate_rows(flags.options, flags.first_row + first, count);
    });
    for (const linear::Rows& rows : made) writer.add(rows);
    const std::uint64_t now = std::min(flags.rows, done + tasks * kRowsOfTask);
    progress.advance(now - done, flags.path);
    done = now;
  }
  progress.clear();
  const linear::CsrInfo info = writer.finish(flags.options.features);
  print(fmt::format("{}: {} rows, {} features, {:.1f} non-zeros a row\n", flags.path, info.rows, info.features,
                    static_cast<double>(info.nonzeros) / static_cast<double>(std::max<std::uint64_t>(info.rows, 1))));
  return 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle generate --like url --rows 200000 url.tcsr
  tulle generate --like url --rows 20000 --first-row 200000 url.test.tcsr
  tulle generate --like webspam --rows 10000 webspam.tcsr
)";

}  // namespace

void add_generate_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("generate", "Make sparse data from a seed");
  command->footer(kExamples);
  const auto flags = std::make_shared<GenerateFlags>();
  add(*command, "--like", "url|webspam", "dimension, non-zeros and values as SparCML's sets have (url)",
      [flags](const std::string& text) { flags->options = linear::generate_like(text); })
      ->trigger_on_parse();
  add(*command, "--rows", "N", "how many (100000)",
      [flags](const std::string& text) { flags->rows = parse_count(text); });
  add(*command, "--first-row", "N", "leave out the rows before: the same seed, other rows (0)",
      [flags](const std::string& text) { flags->first_row = parse_count(text); });
  add(*command, "--features", "N", "dimension",
      [flags](const std::string& text) { flags->options.features = parse_count(text); });
  add(*command, "--used-features", "N", "of them that occur at all",
      [flags](const std::string& text) { flags->options.used_features = parse_count(text); });
  add_real(*command, "--nonzeros", "X", "of a row, on average", flags->options.nonzeros_per_row);
  add(*command, "--noise", "SHARE", "of labels that are wrong (0.02)",
      [flags](const std::string& text) { flags->options.noise = parse_share(text); });
  add(*command, "--seed", "N", "of everything (1)",
      [flags](const std::string& text) { flags->options.seed = parse_count(text); });
  add_int(*command, "--threads", "0: one a processor (0)", 0, 1024, [flags](int number) { flags->threads = number; });
  command->add_option("out", flags->path, "the file to write")->required();
  command->callback([flags, &action] {
    told_by("--features", [&] { linear::generate_rows(flags->options, 0, 0); });
    action = [flags] { return guarded([&] { return generate(*flags); }); };
  });
}

}  // namespace tulle::cli
