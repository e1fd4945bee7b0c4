#include "gradient/recipe_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/did_you_mean.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/registry.hpp"

namespace tulle::gradient {
namespace {

[[noreturn]] void refuse(std::string_view field, std::string_view value, std::string_view expected) {
  throw Error(ErrorKind::bad_input, fmt::format("recipe: {} is '{}', expected {}", field, value, expected));
}

template <class T>
T number_of(std::string_view field, std::string_view text, std::string_view expected) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse(field, text, expected);
  return number;
}

void read(std::string_view field, std::string_view text, double& number) {
  const bool is_percent = text.ends_with('%');
  const double given = number_of<double>(field, text.substr(0, text.size() - (is_percent ? 1 : 0)), "a number");
  if (!std::isfinite(given)) refuse(field, text, "a number");
  number = is_percent ? given / 100 : given;
}
void read(std::string_view field, std::string_view text, std::uint64_t& count) {
  count = number_of<std::uint64_t>(field, text, "a count");
}
void read(std::string_view field, std::string_view text, int& count) { count = number_of<int>(field, text, "a count"); }
void read(std::string_view field, std::string_view text, bool& is_on) {
  if (text != "on" && text != "off" && !text.empty()) refuse(field, text, "on or off");
  is_on = text != "off";
}
void read(std::string_view, std::string_view text, std::string& name) { name = text; }
void read(std::string_view, std::string_view text, ValueCodec& codec) { codec = parse_value_codec(text); }

std::string_view to_string(BucketForm form) { return form == BucketForm::exact ? "exact" : "randomized"; }

template <class Enum>
constexpr std::array<Enum, 0> kAllOf = {};
template <>
constexpr std::array kAllOf<BucketForm> = {BucketForm::exact, BucketForm::randomized};
template <>
constexpr std::array kAllOf<WarmUp> = {WarmUp::none, WarmUp::dense, WarmUp::densities};
template <>
constexpr std::array kAllOf<CodedValues> = {CodedValues::sums, CodedValues::contributions, CodedValues::both};
template <>
constexpr std::array kAllOf<Exchange> = {Exchange::none, Exchange::sum, Exchange::accumulator, Exchange::gather,
                                         Exchange::low_rank};
template <>
constexpr std::array kAllOf<ResidualMode> = {ResidualMode::global, ResidualMode::partial, ResidualMode::local};
template <>
constexpr std::array kAllOf<Aggregate> = {Aggregate::mean, Aggregate::sum, Aggregate::mean_of_senders};
template <>
constexpr std::array kAllOf<Clipping> = {Clipping::none, Clipping::median_norm};
template <>
constexpr std::array kAllOf<OuterStep> = {OuterStep::none, OuterStep::sgd, OuterStep::momentum, OuterStep::nesterov};

template <class Enum>
requires std::is_enum_v<Enum>
void read(std::string_view field, std::string_view text, Enum& choice) {
  std::string names;
  for (const Enum candidate : kAllOf<Enum>) {
    if (to_string(candidate) == text) {
      choice = candidate;
      return;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(candidate));
  }
  refuse(field, text, "one of " + names);
}

std::string write(double number) { return fmt::to_string(number); }
std::string write(std::uint64_t count) { return fmt::to_string(count); }
std::string write(int count) { return fmt::to_string(count); }
std::string write(bool is_on) { return is_on ? "on" : "off"; }
std::string write(const std::string& name) { return name; }
std::string write(const ValueCodec& codec) { return tulle::to_string(codec); }
template <class Enum>
requires std::is_enum_v<Enum> std::string write(Enum choice) { return std::string(to_string(choice)); }

#define TULLE_FIELD(field)                                                                                             \
  RecipeField {                                                                                                        \
#field,                                                                                                            \
        [](const Recipe& recipe) { return write(recipe.field); }, [](Recipe & recipe,                                  \
                                                                     std::string_view                                  \
                                                                         value) { read(#field, value, recipe.field); } \
  }

// Whoever selects wants to keep the rest; error_feedback comes later in the table and can say otherwise.
void set_selector(Recipe& recipe, std::string_view value) {
  recipe.selector = value;
  recipe.error_feedback = value != "none";
}

void set_row(Recipe& recipe, std::string_view value) {
  recipe.row = value;
  for (const Algorithm& row : registry()) {
    if (row.name != value || row.kind != OperationKind::allreduce) continue;
    const bool selects = row.takes == Takes::accumulator;
    if (selects) recipe.exchange = Exchange::accumulator;
    if (!selects && recipe.exchange == Exchange::accumulator) recipe.exchange = Exchange::sum;
    if (selects) recipe.selector = "none";
    if (selects) recipe.error_feedback = true;
  }
}

// "16/512" keeps 16 of every 512.
void set_keep(Recipe& recipe, std::string_view value) {
  const std::size_t slash = value.find('/');
  read("keep", value.substr(0, slash), recipe.keep);
  if (slash != value.npos) read("keep", value.substr(slash + 1), recipe.bucket);
  if (recipe.keep > 0) set_selector(recipe, "bucketed_top_k");
}

std::string get_keep(const Recipe& recipe) { return fmt::format("{}/{}", recipe.keep, recipe.bucket); }

const std::array kFields = {
    TULLE_FIELD(exchange),
    RecipeField{"row", [](const Recipe& recipe) { return recipe.row; }, set_row},
    RecipeField{"keep", get_keep, set_keep},
    RecipeField{"selector", [](const Recipe& recipe) { return recipe.selector; }, set_selector},
    TULLE_FIELD(density),
    TULLE_FIELD(form),
    TULLE_FIELD(alternate_signs),
    TULLE_FIELD(reuse),
    TULLE_FIELD(search_from),
    TULLE_FIELD(dense_below),
    TULLE_FIELD(small_roles_dense),
    TULLE_FIELD(energy),
    TULLE_FIELD(adaptive),
    TULLE_FIELD(error_feedback),
    TULLE_FIELD(decay),
    TULLE_FIELD(momentum),
    TULLE_FIELD(nesterov),
    TULLE_FIELD(masking),
    TULLE_FIELD(weight_decay),
    TULLE_FIELD(clip),
    TULLE_FIELD(warm_up),
    TULLE_FIELD(warm_up_steps),
    TULLE_FIELD(indices),
    TULLE_FIELD(values),
    TULLE_FIELD(stochastic_feedback),
    TULLE_FIELD(coded),
    TULLE_FIELD(residual),
    TULLE_FIELD(teams),
    TULLE_FIELD(rank),
    TULLE_FIELD(aggregate),
    TULLE_FIELD(clipping),
    TULLE_FIELD(every),
    TULLE_FIELD(outer),
    TULLE_FIELD(outer_rate),
    TULLE_FIELD(outer_momentum),
};
#undef TULLE_FIELD

void set_no_feedback(Recipe& recipe, std::string_view value) {
  bool is_off = true;
  read("no_ef", value, is_off);
  recipe.error_feedback = !is_off;
}

// An option of the coding that the recipe has so far. One that its coding does not read would be lost without a word.
template <class T>
void set_coding_option(Recipe& recipe, std::string_view name, std::string_view value, T& option) {
  const auto row = std::ranges::find(value_codecs(), recipe.values.coding, &ValueCodecRow::coding);
  const std::string_view options = row == value_codecs().end() ? std::string_view() : row->options;
  if (options.find(name) == options.npos) {
    throw Error(ErrorKind::bad_input,
                fmt::format("recipe: {} is '{}', and {} has no such option; name the coding first, as in topk|qsgd:4",
                            name, value, to_string(recipe.values.coding)));
  }
  read(name, value, option);
}

// Names that are shorter than the fields they set.
struct ShortName {
  std::string_view name;
  void (*set)(Recipe& recipe, std::string_view value);
};
constexpr std::array kShortNames = {
    ShortName{"ef", [](Recipe& recipe, std::string_view value) { read("ef", value, recipe.error_feedback); }},
    ShortName{"no_ef", set_no_feedback},
    ShortName{"bits", [](Recipe& recipe,
                         std::string_view value) { set_coding_option(recipe, "bits", value, recipe.values.bits); }},
    ShortName{"s", [](Recipe& recipe,
                      std::string_view value) { set_coding_option(recipe, "s", value, recipe.values.sparsity); }},
};

}  // namespace

std::span<const RecipeField> recipe_fields() { return kFields; }

void set_field(Recipe& recipe, std::string_view name, std::string_view value) {
  for (const ShortName& short_name : kShortNames) {
    if (short_name.name == name) return short_name.set(recipe, value);
  }
  std::string names;
  for (const RecipeField& field : kFields) {
    if (field.name == name) return field.set(recipe, value);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", field.name);
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("recipe: there is no '{}'; there are {}{}", name, names, did_you_mean(name, names)));
}

}  // namespace tulle::gradient
