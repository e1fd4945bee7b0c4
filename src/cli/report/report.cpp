// tulle report: rows of results files as one page of charts.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/commands.hpp"
#include "cli/common/launch.hpp"
#include "cli/common/print.hpp"
#include "cli/report/report_page.hpp"
#include "cli/report/result_rows.hpp"
#include "measure/machine.hpp"
#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> files;
  std::string output = "report.html";
  bool skip_bad = false;
};

constexpr std::size_t kMostShown = 10;

void print_bad(const std::vector<BadLine>& bad) {
  for (std::size_t i = 0; i < std::min(bad.size(), kMostShown); ++i) {
    print_error(fmt::format("{}:{}: {}", bad[i].file, bad[i].line, bad[i].reason));
  }
  if (bad.size() > kMostShown) print_error(fmt::format("and {} bad lines more", bad.size() - kMostShown));
}

void write(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw Error(ErrorKind::system, fmt::format("cannot write '{}'", path));
}

int run_report(const ReportFlags& flags) {
  if (kPageTemplate.empty()) {
    throw Error(ErrorKind::unsupported,
                "this tulle was built without Chart.js, which draws the charts; install it (Debian: libjs-chart.js), "
                "or give cmake -DTULLE_CHART_JS=FILE, and build again");
  }
  const ResultRows read = read_result_rows(flags.files);
  print_bad(read.bad);
  if (!read.bad.empty() && !flags.skip_bad) {
    throw Error(ErrorKind::bad_input, fmt::format("{} bad line(s); --skip-bad leaves them out", read.bad.size()));
  }
  if (read.rows.empty()) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: there are no rows to show", fmt::join(flags.files, ", ")));
  }
  write(flags.output, report_page(read.rows, measure::utc_timestamp()));
  print(fmt::format("{}: {} rows of {} file(s); open it in a browser\n", flags.output, read.rows.size(),
                    flags.files.size()));
  return 0;
}

constexpr const char* kExamples = R"(Examples:
  tulle report results/*.jsonl
  tulle report results/*.jsonl -o report.html --skip-bad

Rows come from --json of the other commands, or from 'make bench'. The page opens without a network.
)";

}  // namespace

void add_report_command(CLI::App& parent, Action& action) {
  CLI::App* const command = parent.add_subcommand("report", "Show measurements as one page of charts and tables");
  command->footer(kExamples);
  const auto flags = std::make_shared<ReportFlags>();
  command->add_option("FILE", flags->files, "files of JSON lines")->required()->check(CLI::ExistingFile);
  command->add_option("-o,--output", flags->output, "the page (report.html)")->type_name("FILE");
  command->add_flag("--skip-bad", flags->skip_bad, "leave out lines that are no rows, and only name them");
  command->callback([flags, &action] { action = [flags] { return guarded([&] { return run_report(*flags); }); }; });
}

}  // namespace tulle::cli
