// Recipes, as text and as JSON: what is understood is written as the same recipe, in both forms.
#include "tulle/gradient/recipe.hpp"

#include "fuzz/fuzz.hpp"

using namespace tulle;
using namespace tulle::gradient;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::read_hostile([&] {
    const Recipe recipe = text.starts_with('{') ? recipe_from_json(text) : parse_recipe(text);
    fuzz::require(parse_recipe(to_string(recipe)) == recipe, "a recipe is the same when its text is read");
    fuzz::require(recipe_from_json(to_json(recipe)) == recipe, "a recipe is the same when its JSON is read");
  });
  return 0;
}
