#include "gradient/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/timed.hpp"
#include "gradient/pipeline.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/tune/layer_sync.hpp"

namespace tulle::gradient {
namespace {

constexpr std::string_view kTrimmed = "trimmed_top_k", kSearch = "threshold_binary_search";
// Two sizes give a line. Smaller ones measure the clock, larger ones take long.
constexpr std::size_t kFewValues = 32 * 1024, kManyValues = 512 * 1024;
constexpr int kRepeats = 5;
// What RedSync's authors found at 3.5 GB/s.
constexpr double kRedsyncDenseBytes = 128 * 1024, kRedsyncSearchBytes = 4 * 1024 * 1024;

std::vector<float> sample_values(std::size_t count) {
  Philox random(1);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform() * random.uniform() - 0.25);
  return values;
}

double median_seconds(std::string_view selector, std::span<const float> values, const SelectOptions& options) {
  std::array<double, kRepeats> seconds{};
  for (double& each : seconds) timed(each, [&] { return select<float>(selector, values, options).passed; });
  std::ranges::sort(seconds);
  return seconds[kRepeats / 2];
}

// A search, and filters with its threshold until the next one.
double search_seconds(std::span<const float> values, const Recipe& recipe) {
  SelectOptions options{.density = recipe.density};
  const double search = median_seconds(kSearch, values, options);
  options.threshold = select<float>(kSearch, values, options).threshold;
  const double filter = median_seconds("threshold_filter", values, options);
  return (search + static_cast<double>(recipe.reuse - 1) * filter) / static_cast<double>(recipe.reuse);
}

// Fixed seconds and seconds a value, of trimmed_top_k and of the search.
std::array<double, 4> measured_lines(const Recipe& recipe) {
  const std::vector<float> values = sample_values(kManyValues);
  const std::span<const float> few = std::span(values).first(kFewValues);
  const SelectOptions options{.density = recipe.density};
  const auto line_of = [](double few_seconds, double many_seconds) {
    const double per_value = std::max(0.0, many_seconds - few_seconds) / (kManyValues - kFewValues);
    return std::pair(std::max(0.0, few_seconds - per_value * kFewValues), per_value);
  };
  const auto trimmed = line_of(median_seconds(kTrimmed, few, options), median_seconds(kTrimmed, values, options));
  const auto search = line_of(search_seconds(few, recipe), search_seconds(values, recipe));
  return {trimmed.first, trimmed.second, search.first, search.second};
}

std::uint64_t values_of(double bytes) {
  constexpr double kMost = 1e18;
  return static_cast<std::uint64_t>(std::ceil(std::min(bytes / sizeof(float), kMost)));
}

LayerBoundaries boundaries_of(std::span<const LayerRegion> regions) {
  double dense_until = std::numeric_limits<double>::infinity(), search_from = 0;
  for (const LayerRegion& region : regions) {
    if (!region.selector.empty()) dense_until = std::min(dense_until, region.from_bytes);
    if (region.selector == kSearch) search_from = std::max(region.from_bytes, 1.0);
  }
  return {values_of(dense_until), values_of(search_from)};
}

std::string size_text(double values) {
  const double kilobytes = values * sizeof(float) / 1024;
  return kilobytes < 1024 ? fmt::format("{:.0f} KB", kilobytes) : fmt::format("{:.1f} MB", kilobytes / 1024);
}

std::string boundary_text(std::uint64_t values) {
  constexpr std::uint64_t kBeyondAnyLayer = std::uint64_t{1} << 50;
  if (values == 0) return "no size";
  return values > kBeyondAnyLayer ? "every size" : size_text(static_cast<double>(values));
}

}  // namespace

bool travels_whole(const Recipe& recipe, const Parameter& parameter) {
  if (parameter.size < recipe.dense_below) return true;
  return recipe.small_roles_dense && (parameter.role == Role::small || parameter.role == Role::bias_or_norm);
}

double pending_factor(Aggregate aggregate, int old_ranks, int new_ranks) {
  const double ratio = static_cast<double>(new_ranks) / old_ranks;
  switch (aggregate) {
    case Aggregate::sum: return 1;
    case Aggregate::mean: return ratio;
    case Aggregate::mean_of_senders: return std::min(1.0, ratio);
  }
  return ratio;
}

int usable_teams(int teams, int ranks) {
  int usable = std::min(teams, ranks);
  while (ranks % usable != 0) --usable;
  return usable;
}

void require_selector(const Recipe& recipe) {
  if (recipe.selector != "none") return;
  throw Error(ErrorKind::bad_input, "boundaries can be measured for recipes with a selector");
}

Task<LayerBoundaries> measure_boundaries(Communicator& communicator, const Recipe& recipe) {
  const std::array<double, 4> mine = measured_lines(recipe);
  Request<std::vector<double>> combining = icombine(communicator, mine, Op::max());
  const std::vector<double> slowest = co_await combining;
  const LayerCall call{.ranks = communicator.size(),
                       .density = recipe.density,
                       .selected_bytes = recipe.alternate_signs ? 4.0 : 8.0,
                       .profile = communicator.profile()};
  const std::array selections = {SelectionCost{kTrimmed, slowest[0], slowest[1]},
                                 SelectionCost{kSearch, slowest[2], slowest[3]}};
  const std::vector<LayerRegion> regions = layer_regions(call, selections);
  co_return boundaries_of(regions);
}

PlanRow Pipeline::plan() const {
  const Recipe& recipe = common_.recipe;
  PlanRow row{.parameter = parameter_.name, .size = parameter_.size, .how = "dense"};
  if (travels_together(settled_route())) row.together = group_->name();
  if (recipe.exchange == Exchange::none) {
    row.how = "nowhere";
    row.reason = "the recipe sends nothing";
  } else if (parameter_.size < recipe.dense_below) {
    row.reason = fmt::format("fewer than {} values", recipe.dense_below);
  } else if (is_small()) {
    row.reason = fmt::format("its role is {}", to_string(parameter_.role));
  } else if (is_always_dense()) {
    const ValueCoding coding = dense_codec().coding;
    if (coding != ValueCoding::raw) row.how = tulle::to_string(coding);
    row.reason = "the recipe sends everything";
  } else if (decision_.is_whole) {
    row.reason = fmt::format("adaptive: {:.3g} ms, by the recipe {:.3g} ms", 1e3 * decision_.seconds.whole,
                             1e3 * decision_.seconds.recipe);
  } else {
    const bool selects = recipe.selector != "none";
    if (low_rank_) row.reason = fmt::format("a matrix of {} rows", parameter_.rows);
    row.how = selects                                    ? std::string(selector_now())
              : recipe.exchange == Exchange::accumulator ? recipe.row
                                                         : tulle::to_string(recipe.values.coding);
    row.density = recipe.keep > 0 ? static_cast<double>(recipe.keep) / static_cast<double>(recipe.bucket)
                  : selects || recipe.exchange == Exchange::accumulator ? settled_density()
                                                                        : 1;
    if (low_rank_) row.how = fmt::format("low_rank {}", recipe.rank);
    if (row.reason.empty())
      row.reason = is_searched() ? fmt::format("{} values or more", recipe.search_from) : "the recipe says so";
  }
  return row;
}

std::string text_of_plan(std::span<const PlanRow> rows, const Recipe& recipe, Boundaries boundaries) {
  std::string text = fmt::format("{:<24} {:>12} {:<24} {:>9}  {:<20} {}\n", "parameter", "values", "how", "density",
                                 "together with", "because");
  for (const PlanRow& row : rows) {
    text += fmt::format("{:<24} {:>12} {:<24} {:>9.4g}  {:<20} {}\n", row.parameter, row.size, row.how, row.density,
                        row.together, row.reason);
  }
  if (recipe.dense_below == 0 && recipe.search_from == 0) return text;
  text += fmt::format("boundaries {}: dense below {}, searched from {}; RedSync at 3.5 GB/s: {} and {}\n",
                      boundaries == Boundaries::measured ? "measured here" : "of the recipe",
                      boundary_text(recipe.dense_below),
                      recipe.search_from == 0 ? "no size" : boundary_text(recipe.search_from),
                      size_text(kRedsyncDenseBytes / sizeof(float)), size_text(kRedsyncSearchBytes / sizeof(float)));
  return text;
}

}  // namespace tulle::gradient
