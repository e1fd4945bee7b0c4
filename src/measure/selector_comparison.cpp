#include "measure/selector_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>

#include "select/share.hpp"
#include "select/sum_magnitudes.hpp"
#include "stream/kernels.hpp"
#include "tulle/select/selector.hpp"

namespace tulle::measure {
namespace {

constexpr std::string_view kReadPass = "read_pass";
constexpr std::string_view kAccumulate = "accumulate";
constexpr std::string_view kNthElement = "nth_element";

struct Candidate {
  SelectorRow row;
  double density = 0;             ///< of what is selected, where nth_element can be compared
  std::function<void()> prepare;  ///< before the clock starts
  std::function<void()> run;
  std::vector<double> seconds;
};

using Candidates = std::vector<Candidate>;
using Values = std::vector<float>;
using Check = std::function<std::string(const Selection&)>;

struct Data {
  Values values;
  Values gradient;
  Values scratch;  ///< a copy to be changed
};

// What `side` sees of a value: 0 for the other sign.
float seen(float value, std::string_view selector) {
  if (selector == "top_k_signed") return std::max(value, 0.0f);
  if (selector == "bottom_k_signed") return std::max(-value, 0.0f);
  return std::fabs(value);
}

// Selected values are the largest of [first, last) exactly if as many values exceed the least of them in all as among
// themselves.
bool are_largest(const Values& values, Range range, std::span<const float> selected, std::string_view selector) {
  if (selected.empty()) return true;
  float least = seen(selected.front(), selector);
  for (const float value : selected) least = std::min(least, seen(value, selector));
  const auto exceeds = [&](float value) { return seen(value, selector) > least; };
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(range.begin);
  return std::count_if(first, first + static_cast<std::ptrdiff_t>(range.size()), exceeds) ==
         std::ranges::count_if(selected, exceeds);
}

bool are_largest_of_buckets(const Values& values, const Stream<float>& selected, std::uint64_t bucket) {
  std::size_t done = 0;
  for (std::uint64_t first = 0; first < values.size(); first += bucket) {
    const Range range{first, std::min<std::uint64_t>(first + bucket, values.size())};
    std::size_t end = done;
    while (end < selected.nnz() && selected.index_at(end) < range.end) ++end;
    if (!are_largest(values, range, selected.values().subspan(done, end - done), "bucketed_top_k")) return false;
    done = end;
  }
  return true;
}

bool are_part_of(const Values& values, const Stream<float>& selected) {
  selected.validate();
  for (std::uint64_t i = 0; i < selected.nnz(); ++i) {
    if (std::memcmp(&values[selected.index_at(i)], &selected.values()[i], sizeof(float)) != 0) return false;
  }
  return true;
}

struct Expected {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

Expected expected_count(std::string_view selector, std::uint64_t k) {
  if (selector == "threshold_binary_search") return {k, 2 * k};
  if (selector == "sampled_top_k") return {k / 2, k + k / 3};
  if (selector == "threshold_filter") return {k, k + k / 100};  // ties with the k-th pass as well
  return {k, k};
}

std::string check_count(std::uint64_t selected, Expected expected) {
  if (selected >= expected.least && selected <= expected.most) return {};
  return fmt::format("{} selected, expected {} to {}", selected, expected.least, expected.most);
}

std::string check(const Values& values, std::string_view selector, const Selection& selection, std::uint64_t k) {
  const Stream<float> selected(selection.stream);
  if (!are_part_of(values, selected)) return "values differ from the input's";
  const std::string failure = check_count(selected.nnz(), expected_count(selector, k));
  if (!failure.empty() || selector == "random_k") return failure;
  return are_largest(values, {0, values.size()}, selected.values(), selector) ? "" : "larger values were left behind";
}

std::string check_buckets(const Values& values, const SelectOptions& options, const Selection& selection) {
  const Stream<float> selected(selection.stream);
  if (!are_part_of(values, selected)) return "values differ from the input's";
  const std::uint64_t most = (values.size() + options.bucket - 1) / options.bucket * *options.k;
  const std::string failure = check_count(selected.nnz(), {most - std::min(most, *options.k), most});
  if (!failure.empty() || options.form == BucketForm::randomized) return failure;
  return are_largest_of_buckets(values, selected, options.bucket) ? "" : "larger values were left behind";
}

Candidate pass(std::string_view name, std::function<void()> run, std::function<void()> prepare = {}) {
  return {.row = {.name = std::string(name)}, .prepare = std::move(prepare), .run = std::move(run)};
}

Candidate read_pass(const Data& data) {
  return pass(kReadPass, [&data] {
    [[maybe_unused]] volatile double sum = sum_magnitudes(data.values.data(), data.values.size());
  });
}

Candidate accumulate(Data& data) {
  const auto run = [&data] {
    auto* const residual = reinterpret_cast<std::byte*>(data.scratch.data());
    const auto* const gradient = reinterpret_cast<const std::byte*>(data.gradient.data());
    combine_dense(ValueType::f32, Op::sum(), residual, residual, gradient, data.scratch.size());
  };
  return pass(kAccumulate, run, [&data] { data.scratch = data.values; });
}

Candidate nth_element(Data& data, double density) {
  const auto run = [&data, density] {
    const auto k = static_cast<std::ptrdiff_t>(density * static_cast<double>(data.scratch.size()));
    const auto larger = [](float a, float b) { return std::fabs(a) > std::fabs(b); };
    std::nth_element(data.scratch.begin(), data.scratch.begin() + k, data.scratch.end(), larger);
  };
  Candidate candidate = pass(kNthElement, run, [&data] { data.scratch = data.values; });
  candidate.row.detail = fmt::format("{:g}", density);
  candidate.density = density;
  return candidate;
}

Candidate selector(const Data& data, std::string_view name, std::string detail, const SelectOptions& options,
                   const Check& check_selection) {
  const auto select_once = [&data, name, options] {
    return select(name, std::span<const float>(data.values), options);
  };
  const Selection selection = select_once();
  return {.row = {.name = std::string(name),
                  .detail = std::move(detail),
                  .reference = kReadPass,
                  .selected = selection.stream.nnz(),
                  .failure = check_selection(selection)},
          .run = [select_once] { select_once(); }};
}

Candidate fused(Data& data, std::string_view name, double density, const SelectOptions& options, std::uint64_t k) {
  const auto run = [&data, name, options] {
    return accumulate_and_select(name, std::span(data.scratch), std::span<const float>(data.gradient), options);
  };
  data.scratch = data.values;
  const Selection selection = run();
  Values sum = data.values;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += data.gradient[i];
  return {.row = {.name = std::string(name),
                  .detail = fmt::format("{:g}, accumulating", density),
                  .reference = kAccumulate,
                  .selected = selection.stream.nnz(),
                  .failure = check(sum, name, selection, k)},
          .prepare = [&data] { data.scratch = data.values; },
          .run = [run] { run(); }};
}

void add_buckets(Candidates& candidates, const Data& data, const SelectorComparisonSpec& spec) {
  for (const BucketForm form : {BucketForm::exact, BucketForm::randomized}) {
    for (const std::uint64_t k : spec.bucket_ks) {
      const SelectOptions options{.k = k, .form = form, .seed = spec.seed, .threads = spec.threads};
      const std::string_view suffix = form == BucketForm::exact ? "" : ", randomized";
      candidates.push_back(selector(
          data, "bucketed_top_k", fmt::format("{} of {}{}", k, options.bucket, suffix), options,
          [&data, options](const Selection& selection) { return check_buckets(data.values, options, selection); }));
    }
  }
}

// The threshold that lets a share of the values pass.
double threshold_of(const Values& values, double density) {
  return select("exact_top_k", std::span<const float>(values), {.density = density}).threshold;
}

void add_row(Candidates& candidates, Data& data, const SelectorComparisonSpec& spec, std::string_view name) {
  if (name == "bucketed_top_k") return add_buckets(candidates, data, spec);
  for (const double density : spec.densities) {
    SelectOptions options{.density = density, .seed = spec.seed, .threads = spec.threads};
    const std::uint64_t k = values_of_share(density, data.values.size());
    if (name == "threshold_filter") options.threshold = threshold_of(data.values, density);
    candidates.push_back(selector(data, name, fmt::format("{:g}", density), options,
                                  [&](const Selection& selection) { return check(data.values, name, selection, k); }));
    candidates.back().density = density;
    if (name != "threshold_filter" && name != "exact_top_k") continue;
    data.scratch = data.values;
    for (std::size_t i = 0; i < data.scratch.size(); ++i) data.scratch[i] += data.gradient[i];
    if (name == "threshold_filter") options.threshold = threshold_of(data.scratch, density);
    candidates.push_back(fused(data, name, density, options, k));
  }
}

Candidates make_candidates(Data& data, const SelectorComparisonSpec& spec) {
  Candidates candidates;
  candidates.push_back(read_pass(data));
  candidates.push_back(accumulate(data));
  for (const double density : spec.densities) candidates.push_back(nth_element(data, density));
  for (const std::string_view name : spec.selectors) add_row(candidates, data, spec, name);
  return candidates;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// nth_element takes so long that three times must do.
bool is_over(const Candidate& candidate) { return candidate.row.name == kNthElement && candidate.seconds.size() >= 3; }

void run_round(Candidates& candidates, std::size_t first, bool is_timed) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[(first + i) % candidates.size()];
    if (is_over(candidate)) continue;
    if (candidate.prepare) candidate.prepare();
    const double start = steady_seconds();
    candidate.run();
    if (is_timed) candidate.seconds.push_back(steady_seconds() - start);
  }
}

double median_of(const Candidates& candidates, std::string_view name, double density = 0) {
  const auto found = std::ranges::find_if(candidates, [&](const Candidate& candidate) {
    return candidate.row.name == name && candidate.density == density;
  });
  return quartiles(found->seconds).median;
}

std::vector<SelectorRow> rows_of(const Candidates& candidates) {
  std::vector<SelectorRow> rows;
  for (const Candidate& candidate : candidates) {
    SelectorRow row = candidate.row;
    row.seconds = quartiles(candidate.seconds);
    if (!row.reference.empty()) row.ratio = row.seconds.median / median_of(candidates, row.reference);
    if (candidate.density > 0 && !row.reference.empty()) {
      row.nth_element = median_of(candidates, kNthElement, candidate.density) / row.seconds.median;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::uint64_t rounds_of(const SelectorComparisonSpec& spec) { return static_cast<std::uint64_t>(spec.repeats) + 1; }

std::vector<SelectorRow> compare_selectors(const SelectorComparisonSpec& spec, std::uint64_t count,
                                           Distribution distribution, Progress* progress) {
  Data data{random_values(count, distribution, spec.seed), random_values(count, distribution, spec.seed + 1), {}};
  Candidates candidates = make_candidates(data, spec);
  for (std::uint64_t round = 0; round < rounds_of(spec); ++round) {  // the first only touches the memory
    run_round(candidates, round, round > 0);
    if (progress != nullptr) progress->advance(1, to_string(distribution));
  }
  return rows_of(candidates);
}

}  // namespace tulle::measure
