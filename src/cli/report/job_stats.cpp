#include "cli/report/job_stats.hpp"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/printable.hpp"

namespace tulle::cli {
namespace {

using nlohmann::json;

// The first of `names` that is a number: kinds of lines call the same thing by different names.
std::optional<double> number(const json& line, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = line.find(name);
    if (found != line.end() && found->is_number()) return found->get<double>();
  }
  return std::nullopt;
}

std::vector<double> numbers(const json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_array()) return {};
  const bool all_numbers = std::all_of(found->begin(), found->end(), [](const json& each) { return each.is_number(); });
  return all_numbers ? found->get<std::vector<double>>() : std::vector<double>();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<StepStats> parse_step_stats(std::string_view text) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return std::nullopt;
  StepStats stats{.seconds = number(line, {"seconds", "seconds_median"}),
                  .bytes = number(line, {"bytes_sent", "bytes_sent_total", "bytes"}),
                  .density = number(line, {"density"}),
                  .exposed_seconds = number(line, {"exposed_seconds"}),
                  .loss = number(line, {"loss", "objective"}),
                  .accuracy = number(line, {"accuracy"}),
                  .rank_seconds = numbers(line, "rank_seconds")};
  // Other programs may write anything, such as a number that no integer holds.
  if (const auto step = number(line, {"step", "epoch"}); step && *step >= 0 && *step < 0x1p63) {
    stats.step = static_cast<std::uint64_t>(*step);
  }
  if (const auto kind = line.find("kind"); kind != line.end() && kind->is_string()) {
    stats.is_epoch = kind->get_ref<const std::string&>().starts_with("train");
  }
  if (stats.is_epoch) stats.steps = number(line, {"steps"});
  const auto nnz = number(line, {"nnz"}), dimension = number(line, {"dimension"});
  if (!stats.density && nnz && dimension && *dimension > 0) stats.density = *nnz / *dimension;
  for (const char* const name : {"algorithm", "recipe"}) {
    const auto label = line.find(name);
    if (label != line.end() && label->is_string()) stats.label = printable(label->get<std::string>());
  }
  if (!stats.step && !stats.seconds) return std::nullopt;
  return stats;
}

// Another recipe, a first epoch, or less time than before, is that of a new run. A job that goes on from a checkpoint
// writes the epoch again that was under way.
void JobStats::take_difference(StepStats& stats) {
  const StepStats now = stats;
  const bool is_first = stats.step.value_or(0) <= 1;
  const bool has_fallen = stats.seconds && totals_.seconds && *stats.seconds < *totals_.seconds;
  if (stats.label != totals_.label || is_first || has_fallen) totals_ = {};
  for (const auto field : {&StepStats::seconds, &StepStats::bytes, &StepStats::steps, &StepStats::exposed_seconds}) {
    const double before = (totals_.*field).value_or(0);
    if (stats.*field && *(stats.*field) >= before) *(stats.*field) -= before;
  }
  totals_ = now;
}

void JobStats::add(StepStats stats) {
  if (stats.is_epoch) take_difference(stats);
  ++steps_;
  bytes_ += stats.bytes.value_or(0);
  window_.push_back(std::move(stats));
  if (window_.size() > kWindow) window_.pop_front();
}

std::optional<double> JobStats::rate(double (*amount)(const StepStats&)) const {
  double total = 0, seconds = 0;
  for (const StepStats& stats : window_) {
    total += amount(stats);
    seconds += stats.seconds.value_or(0);
  }
  return seconds > 0 ? std::optional(total / seconds) : std::nullopt;
}

std::optional<double> JobStats::steps_per_second() const {
  return rate([](const StepStats& stats) { return stats.steps.value_or(1); });
}

std::optional<double> JobStats::bytes_per_second() const {
  return rate([](const StepStats& stats) { return stats.bytes.value_or(0); });
}

std::vector<double> JobStats::seconds_of_ranks() const {
  std::vector<double> sums;
  for (const StepStats& stats : window_) {
    sums.resize(std::max(sums.size(), stats.rank_seconds.size()));
    for (std::size_t rank = 0; rank < stats.rank_seconds.size(); ++rank) sums[rank] += stats.rank_seconds[rank];
  }
  return sums;
}

std::optional<SlowestRank> JobStats::slowest_rank() const {
  const std::vector<double> sums = seconds_of_ranks();
  if (sums.empty()) return std::nullopt;
  const auto slowest = std::max_element(sums.begin(), sums.end());
  const double usual = median(sums);
  return SlowestRank{.rank = static_cast<std::size_t>(slowest - sums.begin()),
                     .times_median = usual > 0 ? *slowest / usual : 1};
}

std::vector<double> JobStats::history(std::optional<double> StepStats::*field) const {
  std::vector<double> values;
  for (const StepStats& stats : window_) {
    if (stats.*field) values.push_back(*(stats.*field));
  }
  return values;
}

}  // namespace tulle::cli
