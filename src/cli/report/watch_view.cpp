#include "cli/report/watch_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.hpp"
#include "cli/common/numbers.hpp"

namespace tulle::cli {
namespace {

constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAscii = {"_", ".", ":", "-", "=", "+", "*", "#"};
constexpr double kSlow = 1.2;           // times the median rank; less is noise, and much more is seen without a colour
constexpr std::size_t kTextWidth = 42;  // of a line before its sparkline

// "density   0.98 %", with the sparkline of `values` where the terminal has room for one.
std::string field(std::string_view name, const std::string& text, std::span<const double> values,
                  const WatchStyle& style) {
  std::string line = fmt::format("{:<9} {}", name, text);
  if (values.size() < 2 || style.columns < kTextWidth + 10) return line.substr(0, style.columns);
  line.resize(std::max(line.size(), kTextWidth), ' ');
  return line + sparkline(values, style.columns - line.size() - 1, style.has_unicode);
}

std::string rate(const std::optional<double>& per_second, std::string (*format)(double)) {
  return per_second ? format(*per_second) + "/s" : "-";
}

std::string format_steps(double steps) { return fmt::format("{:.3g} steps", steps); }
std::string format_epochs(double epochs) { return fmt::format("{:.3g} epochs", epochs); }
std::string format_density(double density) { return fmt::format("{:.3g} %", density * 100); }

std::string describe(const SlowestRank& slowest) {
  return fmt::format("{}, {:.2f} times the median", slowest.rank, slowest.times_median);
}

std::string_view unit_of(const JobStats& job) { return job.last().is_epoch ? "epoch" : "step"; }
std::string step_of(const JobStats& job) { return fmt::format("{}", job.last().step.value_or(job.steps())); }

std::string speed_of(const JobStats& job) {
  const bool counts_epochs = job.last().is_epoch && !job.last().steps;
  return rate(job.steps_per_second(), counts_epochs ? format_epochs : format_steps);
}

}  // namespace

std::string sparkline(std::span<const double> values, std::size_t columns, bool has_unicode) {
  values = values.last(std::min(values.size(), columns));
  if (values.empty()) return "";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double range = *most - *least;
  std::string line;
  for (const double value : values) {
    const auto level = static_cast<std::size_t>(range > 0 ? (value - *least) / range * 7.999 : 0);
    line += (has_unicode ? kBlocks : kAscii)[level];
  }
  return line;
}

std::vector<std::string> watch_frame(const JobStats& job, std::string_view source, const WatchStyle& style) {
  std::vector<std::string> lines = {fmt::format("tulle watch  {}", printable(source)).substr(0, style.columns)};
  if (job.is_empty()) {
    lines.push_back("waiting for the first line");
    return lines;
  }
  const StepStats& last = job.last();
  const auto seconds = last.seconds;
  lines.push_back(field(unit_of(job), fmt::format("{}  {}", step_of(job), last.label), {}, style));
  lines.push_back(field("speed",
                        fmt::format("{}  {}", speed_of(job), seconds ? format_seconds(*seconds) + " each" : ""),
                        job.history(&StepStats::seconds), style));
  lines.push_back(field("sent",
                        fmt::format("{}  {}", format_bytes(job.bytes()), rate(job.bytes_per_second(), format_bytes)),
                        job.history(&StepStats::bytes), style));
  if (last.density) {
    lines.push_back(field("density", format_density(*last.density), job.history(&StepStats::density), style));
  }
  if (last.exposed_seconds) {
    lines.push_back(
        field("exposed", format_seconds(*last.exposed_seconds), job.history(&StepStats::exposed_seconds), style));
  }
  if (last.loss)
    lines.push_back(field("loss", fmt::format("{:.4g}", *last.loss), job.history(&StepStats::loss), style));
  if (last.accuracy) {
    lines.push_back(field("accuracy", fmt::format("{:.4f}", *last.accuracy), job.history(&StepStats::accuracy), style));
  }
  if (const auto slowest = job.slowest_rank()) {
    std::string line = field("slow rank", describe(*slowest), job.seconds_of_ranks(), style);
    lines.push_back(slowest->times_median >= kSlow && style.has_colour ? "\033[33m" + line + "\033[0m" : line);
  }
  return lines;
}

std::string watch_line(const JobStats& job) {
  if (job.is_empty()) return "waiting for the first line";
  const StepStats& last = job.last();
  std::string line = fmt::format("{} {}  {}  {}", unit_of(job), step_of(job), speed_of(job),
                                 rate(job.bytes_per_second(), format_bytes));
  if (last.density) line += fmt::format("  density {}", format_density(*last.density));
  if (last.exposed_seconds) line += fmt::format("  exposed {}", format_seconds(*last.exposed_seconds));
  if (last.loss) line += fmt::format("  loss {:.4g}", *last.loss);
  if (last.accuracy) line += fmt::format("  accuracy {:.4f}", *last.accuracy);
  if (const auto slowest = job.slowest_rank()) line += fmt::format("  slowest rank {}", describe(*slowest));
  return line;
}

}  // namespace tulle::cli
