// Recipes as text, and which of them make sense.
#include "tulle/gradient/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/index_choice.hpp"
#include "gradient/recipe_fields.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/registry.hpp"

namespace tulle::gradient {
namespace {

// What stands before and after the first `separator`.
struct Parts {
  std::string_view before, after;
};
Parts cut(std::string_view text, char separator) {
  const std::size_t place = text.find(separator);
  if (place == text.npos) return {text, {}};
  return {text.substr(0, place), text.substr(place + 1)};
}

// 0 of a bucket is off, which a recipe that keeps so many may become; where it is off already, somebody means none.
void set_named(Recipe& recipe, std::string_view field, std::string_view value) {
  const bool was_off = recipe.keep == 0;
  set_field(recipe, field, value);
  if (field != "keep" || !was_off || recipe.keep > 0) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("recipe: keep is '{}', which sends nothing; expected 1 or more of every bucket, as in "
                          "topk:16/512, or a share of all values, as in topk:1%",
                          value));
}

// A value without a name: 16/512 is what to keep, everything else is for the preset's first knob.
void set_first_knob(Recipe& recipe, const Preset& preset, std::string_view value) {
  if (value.find('/') != value.npos) return set_named(recipe, "keep", value);
  if (value == "randomized" || value == "exact") return set_field(recipe, "form", value);
  if (preset.first_knob.empty()) {
    throw Error(ErrorKind::bad_input, fmt::format("recipe: {} has no knob that '{}' could set", preset.name, value));
  }
  set_field(recipe, preset.first_knob, value);
}

Recipe recipe_of_preset(std::string_view text) {
  const auto [name, knobs] = cut(text, ':');
  const Preset& preset = find_preset(name);
  Recipe recipe = preset.recipe;
  for (std::string_view rest = knobs; !rest.empty();) {
    const auto [knob, others] = cut(rest, ',');
    const auto [field, value] = cut(knob, '=');
    if (knob.find('=') == knob.npos) {
      set_first_knob(recipe, preset, knob);
    } else {
      set_named(recipe, field, value);
    }
    rest = others;
  }
  return recipe;
}

const ValueCodecRow* coding_named(std::string_view name) {
  const auto found = std::ranges::find(value_codecs(), name, &ValueCodecRow::name);
  return found == value_codecs().end() ? nullptr : &*found;
}

// "qsgd:4" is short for "qsgd:bits=4": the first option needs no name.
ValueCodec coding_of(const ValueCodecRow& row, std::string_view options) {
  if (options.empty()) return parse_value_codec(row.name);
  const std::string_view first = cut(row.options, ',').before;
  const bool has_name = options.find('=') != options.npos;
  return parse_value_codec(fmt::format("{}:{}{}{}", row.name, has_name ? "" : first, has_name ? "" : "=", options));
}

void add_stage(Recipe& recipe, std::string_view stage) {
  const auto [name, value] = cut(stage, ':');
  if (const ValueCodecRow* const coding = coding_named(name == "fp16" ? "f16" : name)) {
    recipe.values = coding_of(*coding, value);
  } else {
    set_named(recipe, name, value);
  }
}

// What leads from `from` to `to`, as stages.
struct Stages {
  std::string text;
  int count = 0;
};
Stages stages_between(Recipe from, const Recipe& to) {
  Stages stages;
  for (const RecipeField& field : recipe_fields()) {
    const std::string wanted = field.get(to);
    if (field.get(from) == wanted) continue;
    field.set(from, wanted);
    stages.text += fmt::format("|{}:{}", field.name, wanted);
    stages.count += 1;
  }
  return stages;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::bad_input, "recipe: " + why); }

// `field` is `value`, which is not `expected`.
void require(bool holds, std::string_view field, double value, std::string_view expected) {
  if (!holds) refuse(fmt::format("{} is {}, expected {}", field, value, expected));
}

bool selects(const Recipe& recipe) { return recipe.selector != "none" || recipe.exchange == Exchange::accumulator; }

// Codings that lose too much to do without error feedback.
bool is_coarse(ValueCoding coding) {
  return coding == ValueCoding::one_bit_mqe || coding == ValueCoding::three_lc || coding == ValueCoding::codebook;
}

bool codes(const Recipe& recipe) { return recipe.values.coding != ValueCoding::raw; }

// Whether a step leaves something that a rank can keep.
bool leaves_something(const Recipe& recipe) {
  return selects(recipe) || recipe.exchange == Exchange::low_rank ||
         (recipe.exchange == Exchange::gather && codes(recipe));
}

void check_numbers(const Recipe& recipe) {
  require(recipe.density > 0 && recipe.density <= 1, "density", recipe.density, "more than 0 and at most 1");
  require(recipe.decay > 0 && recipe.decay <= 1, "decay", recipe.decay, "more than 0 and at most 1");
  require(recipe.momentum >= 0 && recipe.momentum < 1, "momentum", recipe.momentum, "0 or more and less than 1");
  require(recipe.outer_momentum >= 0 && recipe.outer_momentum < 1, "outer_momentum", recipe.outer_momentum,
          "0 or more and less than 1");
  require(recipe.weight_decay >= 0, "weight_decay", recipe.weight_decay, "0 or more");
  require(recipe.clip >= 0, "clip", recipe.clip, "0 or more");
  require(recipe.energy >= 0 && recipe.energy <= 1, "energy", recipe.energy, "at most 1; 0: off");
  require(recipe.outer_rate > 0, "outer_rate", recipe.outer_rate, "more than 0");
  require(recipe.bucket > 0, "bucket", 0, "1 or more");
  require(recipe.keep <= recipe.bucket, "keep", static_cast<double>(recipe.keep), "at most the bucket");
  require(recipe.reuse > 0, "reuse", 0, "1 or more");
  require(recipe.every > 0, "every", 0, "1 or more");
  require(recipe.rank > 0, "rank", 0, "1 or more");
  require(recipe.teams > 0, "teams", recipe.teams, "1 or more");
  tulle::validate(recipe.values);
}

void check_accumulate(const Recipe& recipe) {
  if (recipe.nesterov && recipe.momentum == 0) refuse("nesterov without momentum adds the gradient twice");
  if (recipe.masking && recipe.momentum == 0) refuse("masking clears momentum, and this recipe has none");
  if (recipe.masking && !selects(recipe)) refuse("masking would clear all momentum: this recipe delivers every value");
  if (recipe.error_feedback && !leaves_something(recipe)) {
    refuse("error_feedback keeps what is not delivered, and this recipe delivers every value");
  }
  if (recipe.decay != 1 && !recipe.error_feedback) refuse("decay is for what error_feedback keeps, which is off");
  if (recipe.warm_up == WarmUp::densities && !selects(recipe))
    refuse("densities of warm_up are for recipes that select");
  if (recipe.warm_up == WarmUp::dense && !leaves_something(recipe)) {
    refuse("this recipe sends everything as it is; it needs no dense warm_up");
  }
  if ((recipe.warm_up == WarmUp::none) != (recipe.warm_up_steps == 0)) {
    refuse("warm_up and warm_up_steps go together");
  }
}

void check_selection(const Recipe& recipe) {
  if (recipe.selector == "none") {
    if (recipe.keep > 0) refuse("keep is for bucketed_top_k, and the selector is none");
    if (recipe.reuse > 1) refuse("reuse is for a selector's threshold, and the selector is none");
    if (recipe.alternate_signs) refuse("alternate_signs is for a selector, and the selector is none");
    if (recipe.search_from > 0) refuse("search_from is for large layers of a selector, and the selector is none");
    return;
  }
  const Selector& selector = selector_from(recipe.selector);
  const bool is_bucketed = selector.name == "bucketed_top_k";
  if (selector.needs == SelectorNeeds::threshold)
    refuse("threshold_filter needs a threshold; another row finds it: reuse");
  if (recipe.keep > 0 && !is_bucketed) refuse(fmt::format("keep is for bucketed_top_k, not {}", recipe.selector));
  if (recipe.form == BucketForm::randomized && !is_bucketed) refuse("only bucketed_top_k has a randomized form");
  const bool has_threshold = selector.signs == SelectorSigns::asked;
  if (recipe.alternate_signs && !has_threshold) refuse(fmt::format("{} selects by no sign", recipe.selector));
  if (recipe.alternate_signs && recipe.reuse > 1) {
    refuse("reuse: a threshold for positive values is none for the negative ones of the next step; alternate_signs");
  }
  if (recipe.reuse > 1 && !has_threshold && recipe.search_from == 0)
    refuse(fmt::format("reuse: {} finds no threshold", recipe.selector));
  if (is_bucketed && recipe.warm_up == WarmUp::densities) refuse("densities of warm_up are no numbers of a bucket");
  if (recipe.reuse > 1 && recipe.warm_up == WarmUp::densities) {
    refuse("reuse: a threshold of one density is wrong for the next one of warm_up");
  }
}

// What is decided while training goes on.
void check_decisions(const Recipe& recipe) {
  if (recipe.adaptive && !leaves_something(recipe)) {
    refuse("adaptive sends layers whole where that is faster, and this recipe sends everything or nothing");
  }
  if (recipe.energy == 0) return;
  if (!selects(recipe) || recipe.keep > 0) refuse("energy is for recipes that select by a density");
  if (recipe.reuse > 1) refuse("reuse: a threshold of one density is wrong for the next one that energy asks for");
  if (recipe.warm_up == WarmUp::densities) refuse("energy and the densities of warm_up both say what is sent");
}

bool is_choice(const std::string& row) { return row == kAuto || row == kAutoSparse || row == kAutoDense; }

void check_row(const Recipe& recipe) {
  const Takes takes = recipe.exchange == Exchange::accumulator ? Takes::accumulator : Takes::stream;
  if (is_choice(recipe.row)) {
    if (takes == Takes::accumulator && recipe.row != kAuto) refuse(recipe.row + " is no row that selects");
    return;
  }
  const Algorithm& row = find_algorithm(OperationKind::allreduce, recipe.row);
  if (row.takes != takes) refuse(fmt::format("{} is no row for exchange {}", row.name, to_string(recipe.exchange)));
  if (recipe.exchange == Exchange::gather)
    refuse(fmt::format("contributions are gathered, not summed by {}", row.name));
  if (codes(recipe) && !row.codes_values) refuse(fmt::format("{} sends values as they are", row.name));
}

void check_exchange(const Recipe& recipe) {
  if (recipe.exchange == Exchange::none && (selects(recipe) || codes(recipe) || recipe.row != kAuto)) {
    refuse("exchange none sends nothing, so that there is nothing to select or to code, and no row");
  }
  if (recipe.exchange == Exchange::low_rank && (selects(recipe) || codes(recipe))) {
    refuse("exchange low_rank sums thin matrices as they are; it neither selects nor codes");
  }
  if (recipe.exchange == Exchange::accumulator) {
    if (recipe.selector != "none") refuse(fmt::format("{} selects by itself; leave out the selector", recipe.row));
    if (!recipe.error_feedback) refuse(fmt::format("{} leaves values behind, which error_feedback keeps", recipe.row));
  }
  if (recipe.residual != ResidualMode::global && recipe.exchange != Exchange::accumulator) {
    refuse("residual modes are for rows that select");
  }
  if (recipe.teams > 1 && recipe.row != "spardl") refuse("teams are for spardl");
  check_row(recipe);
  (void)index_coding_named(recipe.indices);  // which knows the name, or throws
}

void check_aggregate(const Recipe& recipe) {
  if (recipe.aggregate == Aggregate::mean_of_senders && recipe.exchange != Exchange::gather) {
    refuse("mean_of_senders has to know who sent what: exchange gather");
  }
  if (recipe.clipping != Clipping::none && recipe.aggregate != Aggregate::mean_of_senders) {
    refuse("clipping is for mean_of_senders");
  }
}

// An owner's rounding of a sum stays with nobody, so that it has to be right on average, or nearly right.
void check_coding(const Recipe& recipe) {
  const ValueCoding coding = recipe.values.coding;
  const bool is_gathered = recipe.exchange == Exchange::gather;
  const bool is_kept = recipe.exchange == Exchange::accumulator || (is_gathered && recipe.error_feedback);
  if (is_coarse(coding) && !is_kept) {
    refuse(fmt::format("what {} loses has to be kept: exchange gather with error_feedback", tulle::to_string(coding)));
  }
  if (coding == ValueCoding::same_sign_mean && !(is_gathered && recipe.alternate_signs)) {
    refuse("same_sign_mean is for contributions of one sign: exchange gather with alternate_signs");
  }
  if (coding == ValueCoding::three_value_stochastic && is_gathered && recipe.error_feedback &&
      !recipe.stochastic_feedback) {
    refuse("error_feedback of three_value_stochastic adds up its noise; stochastic_feedback asks for it all the same");
  }
}

}  // namespace

std::string_view to_string(WarmUp warm_up) {
  switch (warm_up) {
    case WarmUp::none: return "none";
    case WarmUp::dense: return "dense";
    case WarmUp::densities: return "densities";
  }
  return "unknown";
}

std::string_view to_string(Exchange exchange) {
  switch (exchange) {
    case Exchange::none: return "none";
    case Exchange::sum: return "sum";
    case Exchange::accumulator: return "accumulator";
    case Exchange::gather: return "gather";
    case Exchange::low_rank: return "low_rank";
  }
  return "unknown";
}

std::string_view to_string(Aggregate aggregate) {
  switch (aggregate) {
    case Aggregate::mean: return "mean";
    case Aggregate::sum: return "sum";
    case Aggregate::mean_of_senders: return "mean_of_senders";
  }
  return "unknown";
}

std::string_view to_string(OuterStep outer) {
  switch (outer) {
    case OuterStep::none: return "none";
    case OuterStep::sgd: return "sgd";
    case OuterStep::momentum: return "momentum";
    case OuterStep::nesterov: return "nesterov";
  }
  return "unknown";
}

Recipe parse_recipe(std::string_view text) {
  constexpr std::string_view kAdaptive = "adaptive:";
  const bool is_adaptive = text.starts_with(kAdaptive);
  auto [head, rest] = cut(is_adaptive ? text.substr(kAdaptive.size()) : text, '|');
  Recipe recipe = recipe_of_preset(head);
  if (is_adaptive) recipe.adaptive = true;
  while (!rest.empty()) {
    const auto [stage, others] = cut(rest, '|');
    add_stage(recipe, stage);
    rest = others;
  }
  validate(recipe);
  return recipe;
}

std::string to_string(const Recipe& recipe) {
  std::string_view best;
  Stages fewest{{}, -1};
  for (const Preset& preset : presets()) {
    Stages stages = stages_between(preset.recipe, recipe);
    if (fewest.count >= 0 && stages.count >= fewest.count) continue;
    fewest = std::move(stages);
    best = preset.name;
  }
  return std::string(best) + fewest.text;
}

void validate(const Recipe& recipe) {
  check_numbers(recipe);
  check_accumulate(recipe);
  check_selection(recipe);
  check_decisions(recipe);
  check_exchange(recipe);
  check_aggregate(recipe);
  check_coding(recipe);
}

bool keeps_residual(const Recipe& recipe) { return recipe.error_feedback; }

}  // namespace tulle::gradient
