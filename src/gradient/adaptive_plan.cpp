#include "gradient/adaptive_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_counts.hpp"
#include "tulle/base/error.hpp"

namespace tulle::gradient {
namespace {

using Json = nlohmann::json;
using Way = AdaptivePlan::Way;

// Another way than the recipe's has to be faster by so much: less is noise, and the recipe sends less.
constexpr double kNoise = 0.97;
// What trials may take of all steps. More is felt; less finds out late that the network has changed.
constexpr double kTrialShare = 0.02;
constexpr std::size_t kLeastUse = 50, kMostUse = 100'000;

constexpr std::array kWays = {Way::recipe, Way::whole, Way::mixed};

constexpr double AdaptivePlan::WaySeconds::*kSecondsOf[] = {
    &AdaptivePlan::WaySeconds::recipe, &AdaptivePlan::WaySeconds::whole, &AdaptivePlan::WaySeconds::mixed};
double AdaptivePlan::WaySeconds::*seconds_of(Way way) { return kSecondsOf[static_cast<std::size_t>(way)]; }

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::bad_input, "state of an adaptive recipe: " + why);
}

Way way_from(const std::string& name) {
  for (const Way way : kWays) {
    if (to_string(way) == name) return way;
  }
  refuse(fmt::format("there is no way '{}'", name));
}

}  // namespace

std::string_view to_string(Way way) {
  switch (way) {
    case Way::recipe: return "recipe";
    case Way::whole: return "whole";
    case Way::mixed: return "mixed";
  }
  return "unknown";
}

AdaptivePlan::AdaptivePlan(std::vector<LayerSeconds> models, bool is_frozen)
    : models_(std::move(models)),
      computing_(models_.size()),
      expected_(models_.size()),
      mixed_(models_.size(), false),
      is_frozen_(is_frozen) {
  begin_trial(Way::recipe);
  if (!is_frozen_) return;
  expect_layers();
  way_ = Way::mixed;
  is_in_use_ = true;
}

bool AdaptivePlan::is_whole(std::size_t layer) const {
  return way_ == Way::whole || (way_ == Way::mixed && mixed_[layer]);
}

bool AdaptivePlan::note(double seconds, std::span<const double> computing) {
  assert(computing.size() == models_.size());
  if (is_frozen_ || models_.empty()) return false;
  steps_left_ -= 1;
  if (is_in_use_) {
    if (steps_left_ == 0) begin_trial(Way::recipe);
    return false;
  }
  if (steps_left_ < kCountedSteps) {
    step_seconds_.push_back(seconds);
    for (std::size_t i = 0; i < computing.size(); ++i) {
      least_computing_[i] = std::min(least_computing_[i], computing[i]);
    }
  }
  return steps_left_ == 0;
}

std::vector<double> AdaptivePlan::numbers() const {
  std::vector<double> numbers = step_seconds_;
  numbers.insert(numbers.end(), least_computing_.begin(), least_computing_.end());
  return numbers;
}

void AdaptivePlan::begin_trial(Way way) {
  way_ = way;
  is_in_use_ = false;
  steps_left_ = kTrialSteps;
  step_seconds_.clear();
  least_computing_.assign(models_.size(), std::numeric_limits<double>::infinity());
}

void AdaptivePlan::decide(std::span<const double> sums, int ranks) {
  assert(sums.size() == kCountedSteps + models_.size());
  way_seconds_.*seconds_of(way_) = *std::min_element(sums.begin(), sums.begin() + kCountedSteps) / ranks;
  const std::span<const double> computing = sums.subspan(kCountedSteps);
  for (std::size_t i = 0; i < models_.size() && way_ != Way::mixed; ++i) {
    (way_ == Way::recipe ? computing_[i].recipe : computing_[i].whole) = computing[i] / ranks;
  }
  if (way_ == Way::recipe) return begin_trial(Way::whole);
  if (way_ == Way::mixed) return take_up_fastest();
  expect_layers();
  const auto whole = std::ranges::count(mixed_, true);
  // A mix that is one of the other ways has been tried already.
  if (whole == 0 || whole == std::ssize(mixed_)) {
    way_seconds_.mixed = 0;
    return take_up_fastest();
  }
  begin_trial(Way::mixed);
}

// How much longer the exchanges of a step took than the model says. Where back-propagation hides them it is less.
double AdaptivePlan::scale_of(double LayerSeconds::*way, double seconds) const {
  if (is_frozen_) return 1;
  double model = 0;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    model += models_[i].*way;
    seconds -= computing_[i].*way;
  }
  return model > 0 ? std::max(0.0, seconds) / model : 1;
}

void AdaptivePlan::expect_layers() {
  const double recipe_scale = scale_of(&LayerSeconds::recipe, way_seconds_.recipe);
  const double whole_scale = scale_of(&LayerSeconds::whole, way_seconds_.whole);
  for (std::size_t i = 0; i < models_.size(); ++i) {
    expected_[i] = {computing_[i].recipe + recipe_scale * models_[i].recipe,
                    computing_[i].whole + whole_scale * models_[i].whole};
    mixed_[i] = expected_[i].whole < expected_[i].recipe;
  }
}

void AdaptivePlan::take_up_fastest() {
  way_ = Way::recipe;
  for (const Way way : {Way::mixed, Way::whole}) {
    const double seconds = way_seconds_.*seconds_of(way);
    if (seconds > 0 && seconds < kNoise * (way_seconds_.*seconds_of(way_))) way_ = way;
  }
  is_in_use_ = true;
  steps_left_ = steps_of_use();
}

// So many that what the slower ways took beyond the fastest is a small share of all.
std::size_t AdaptivePlan::steps_of_use() const {
  const double fastest = way_seconds_.*seconds_of(way_);
  if (!(fastest > 0)) return kLeastUse;
  double beyond = 0;
  for (const Way way : kWays) beyond += std::max(0.0, way_seconds_.*seconds_of(way) - fastest) * kTrialSteps;
  const double steps = beyond / fastest / kTrialShare;
  return static_cast<std::size_t>(std::clamp(steps, double{kLeastUse}, double{kMostUse}));
}

std::string AdaptivePlan::saved() const {
  Json object = {{"way", to_string(way_)},
                 {"is_in_use", is_in_use_},
                 {"steps_left", steps_left_},
                 {"mixed", mixed_},
                 {"way_seconds", {way_seconds_.recipe, way_seconds_.whole, way_seconds_.mixed}}};
  for (std::size_t i = 0; i < models_.size(); ++i) {
    object["layers"].push_back({computing_[i].recipe, computing_[i].whole, expected_[i].recipe, expected_[i].whole});
  }
  return object.dump();
}

void AdaptivePlan::restore(std::string_view text) {
  AdaptivePlan loaded(models_, is_frozen_);
  try {
    const Json object = Json::parse(text);
    loaded.begin_trial(way_from(object.at("way").get<std::string>()));
    require_counts(object, {"steps_left"}, "what adaptive learned");
    object.at("is_in_use").get_to(loaded.is_in_use_);
    if (loaded.is_in_use_) object.at("steps_left").get_to(loaded.steps_left_);
    const auto mixed = object.at("mixed").get<std::vector<bool>>();
    if (mixed.size() != models_.size()) refuse(fmt::format("it has {} layers, not {}", mixed.size(), models_.size()));
    loaded.mixed_ = mixed;
    const Json& seconds = object.at("way_seconds");
    loaded.way_seconds_ = {seconds.at(0), seconds.at(1), seconds.at(2)};
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const Json& layer = object.at("layers").at(i);
      loaded.computing_[i] = {layer.at(0), layer.at(1)};
      loaded.expected_[i] = {layer.at(2), layer.at(3)};
    }
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
  if (loaded.steps_left_ == 0) refuse("no steps are left");
  *this = std::move(loaded);
}

}  // namespace tulle::gradient
