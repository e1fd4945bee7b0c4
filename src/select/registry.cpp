#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "select/selectors.hpp"

#include "base/did_you_mean.hpp"

namespace tulle {
namespace {

constexpr SelectorAccuracy kExact = SelectorAccuracy::exact;
constexpr SelectorAccuracy kApproximate = SelectorAccuracy::approximate;
constexpr SelectorNeeds kNeedsK = SelectorNeeds::k;
constexpr SelectorSigns kOwn = SelectorSigns::own;
constexpr SelectorSigns kAsked = SelectorSigns::asked;

constexpr Selector kSelectors[] = {
    {"exact_top_k", "the k largest magnitudes", "", kExact, kNeedsK, kAsked, exact_top_k},
    {"bucketed_top_k", "the k largest of every 512 consecutive values, exact or randomized", "SparCML", kExact, kNeedsK,
     kOwn, bucketed_top_k},
    {"trimmed_top_k", "the k largest, by a threshold lowered from the maximum towards the mean", "RedSync", kExact,
     kNeedsK, kAsked, trimmed_top_k},
    {"threshold_binary_search", "all above a threshold that k to 2k values reach", "RedSync", kApproximate, kNeedsK,
     kAsked, threshold_binary_search},
    {"threshold_filter", "all that reach a known threshold, at most a cap", "RedSync", kExact, SelectorNeeds::threshold,
     kAsked, threshold_filter},
    {"sampled_top_k", "about the k largest, by a threshold from a sample", "Deep Gradient Compression", kApproximate,
     kNeedsK, kOwn, sampled_top_k},
    {"top_k_signed", "the k largest positive values", "RedSync", kExact, kNeedsK, kOwn, top_k_signed},
    {"bottom_k_signed", "the k most negative values", "RedSync", kExact, kNeedsK, kOwn, bottom_k_signed},
    {"random_k", "k coordinates drawn uniformly", "", kApproximate, kNeedsK, kOwn, random_k},
};

}  // namespace

std::string_view to_string(SelectorNeeds needs) { return needs == SelectorNeeds::k ? "k" : "threshold"; }
std::string_view to_string(SelectorAccuracy accuracy) {
  return accuracy == SelectorAccuracy::exact ? "exact" : "approximate";
}

std::span<const Selector> selectors() { return kSelectors; }

const Selector& selector_from(std::string_view name) {
  const auto* const found = std::ranges::find(kSelectors, name, &Selector::name);
  if (found != std::end(kSelectors)) return *found;
  std::string names;
  for (const Selector& row : kSelectors) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  throw Error(ErrorKind::bad_input,
              fmt::format("no selector is called '{}'; there are {}{}", name, names, did_you_mean(name, names)));
}

}  // namespace tulle
