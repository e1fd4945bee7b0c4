// Recipes as JSON objects, by the names of their fields; stats as lines of JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gradient/recipe_fields.hpp"
#include "tulle/base/error.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {
namespace {

using Json = nlohmann::json;

constexpr const char* kPreset = "preset";

// A text that is a number becomes one, on and off become true and false.
Json value_of(const std::string& text) {
  if (text == "on" || text == "off") return text == "on";
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

std::string text_of(const std::string& field, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_number()) return value.dump();
  throw Error(ErrorKind::bad_input, fmt::format("recipe: '{}' is neither a text nor a number", field));
}

}  // namespace

std::string to_json(const Parameter& parameter, const ParameterStats& stats) {
  const double size = static_cast<double>(parameter.size);
  const Json object = {
      {"parameter", parameter.name},
      {"step", stats.step},
      {"route", stats.route},
      {"taken", stats.taken},
      {"delivered", stats.delivered},
      {"out_of_teams", stats.out_of_teams},
      {"density", size > 0 ? static_cast<double>(stats.delivered) / size : 0.0},
      {"bytes_sent", stats.bytes_sent},
      {"bytes_received", stats.bytes_received},
      {"gradient_norm", stats.gradient_norm},
      {"residual_norm", stats.residual_norm},
      {"residual_over_gradient", stats.gradient_norm > 0 ? stats.residual_norm / stats.gradient_norm : 0.0},
      {"accumulate_seconds", stats.accumulate_seconds},
      {"select_seconds", stats.select_seconds},
      {"encode_seconds", stats.encode_seconds},
      {"exchange_seconds", stats.exchange_seconds},
      {"wait_seconds", stats.wait_seconds},
      {"decode_seconds", stats.decode_seconds},
      {"mask_seconds", stats.mask_seconds},
      {"apply_seconds", stats.apply_seconds}};
  return object.dump();
}

std::string to_json(const Recipe& recipe) {
  Json object;
  for (const RecipeField& field : recipe_fields()) object[std::string(field.name)] = value_of(field.get(recipe));
  return object.dump();
}

Recipe recipe_from_json(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) throw Error(ErrorKind::bad_input, "recipe: no JSON object");
  Recipe recipe;
  if (const auto preset = object.find(kPreset); preset != object.end()) {
    recipe = find_preset(text_of(kPreset, *preset)).recipe;
  }
  for (const auto& [name, value] : object.items()) {
    if (name != kPreset) set_field(recipe, name, text_of(name, value));
  }
  // What a field implies for others must not outlive what the text says about those.
  for (const RecipeField& field : recipe_fields()) {
    const auto found = object.find(std::string(field.name));
    if (found != object.end()) field.set(recipe, text_of(found.key(), *found));
  }
  validate(recipe);
  return recipe;
}

}  // namespace tulle::gradient
