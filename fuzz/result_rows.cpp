// Lines of results that `tulle report` and `tulle watch` read.
#include "cli/report/result_rows.hpp"

#include "cli/report/job_stats.hpp"
#include "fuzz/fuzz.hpp"

using namespace tulle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  cli::JobStats job;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto reason = cli::check_row(line);
    fuzz::require(!reason || !reason->empty(), "what is refused is told why");
    if (auto stats = cli::parse_step_stats(line)) job.add(std::move(*stats));
  }
  (void)job.steps_per_second();
  (void)job.bytes_per_second();
  (void)job.slowest_rank();
  (void)job.history(&cli::StepStats::loss);
  return 0;
}
