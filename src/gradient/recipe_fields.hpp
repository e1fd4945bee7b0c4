// The fields of a recipe as data: names, and text both ways. Text, JSON and equality of stages read this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tulle/gradient/recipe.hpp"

namespace tulle::gradient {

struct RecipeField {
  std::string_view name;
  std::string (*get)(const Recipe& recipe);
  /// Throws bad_input naming the field.
  void (*set)(Recipe& recipe, std::string_view value);
};

/// In the order in which to set them: what a field implies for others can be taken back by those after it.
std::span<const RecipeField> recipe_fields();

/// Sets the field of that name, or what one of the short names stands for. Throws bad_input that lists the names.
void set_field(Recipe& recipe, std::string_view name, std::string_view value);

}  // namespace tulle::gradient
