#include "measure/recipe_comparison.hpp"

#include <gtest/gtest.h>

#include "measure/model_shapes.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::measure {
namespace {

RecipeComparisonSpec small_comparison(std::vector<std::string> recipes) {
  const std::uint64_t sizes[] = {3000, 17, 500};
  return {.recipes = std::move(recipes), .parameters = parameters_of_sizes(sizes), .repeats = 2, .warmup = 1};
}

std::vector<RecipeRow> compare_in_simulation(const RecipeComparisonSpec& spec, int ranks) {
  std::vector<RecipeRow> rows;
  SimWorld world({.ranks = ranks});
  world.run([&](Communicator& communicator) -> Task<> {
    Task<std::vector<RecipeRow>> comparing = compare_recipes(communicator, spec);
    std::vector<RecipeRow> mine = co_await comparing;
    if (communicator.rank() == 0) rows = std::move(mine);
  });
  return rows;
}

TEST(RecipeComparison, every_preset_is_verified_and_timed) {
  std::vector<std::string> names;
  for (const gradient::Preset& preset : gradient::presets()) names.emplace_back(preset.name);
  const std::vector<RecipeRow> rows = compare_in_simulation(small_comparison(names), 3);
  ASSERT_EQ(rows.size(), names.size());
  for (const RecipeRow& row : rows) {
    EXPECT_TRUE(row.verified) << row.recipe << " " << row.failure;
    EXPECT_EQ(row.values, 3517u);
    ASSERT_TRUE(row.seconds) << row.recipe;
    EXPECT_EQ(row.bytes_sent_max > 0, row.recipe != "noop") << row.recipe;
  }
}

TEST(RecipeComparison, recipes_that_round_sums_or_drop_the_rest_are_not_asked_for_it) {
  const std::uint64_t sizes[] = {20000, 12000};
  const RecipeComparisonSpec spec{.recipes = {"topk:16/512|qsgd:4", "topk:1%|no_ef", "topk:1%"},
                                  .parameters = parameters_of_sizes(sizes),
                                  .repeats = 2,
                                  .warmup = 1};
  for (const RecipeRow& row : compare_in_simulation(spec, 3)) {
    EXPECT_TRUE(row.verified) << row.recipe << " " << row.failure;
  }
}

TEST(RecipeComparison, dense_is_the_measure_of_all_and_is_added_where_it_is_missing) {
  const std::vector<RecipeRow> rows = compare_in_simulation(small_comparison({"topk:1%"}), 4);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].recipe, "dense");
  EXPECT_DOUBLE_EQ(rows[0].ratio.value(), 1);
  EXPECT_DOUBLE_EQ(rows[0].density, 1);
  EXPECT_GT(rows[1].ratio.value(), 0);
  EXPECT_EQ(steps_of(small_comparison({"topk:1%"})), 6u);
  EXPECT_EQ(steps_of(small_comparison({"dense", "topk:1%"})), 6u);
}

Task<> compare_and_check(Communicator communicator, const RecipeComparisonSpec& spec) {
  Task<std::vector<RecipeRow>> comparing = compare_recipes(communicator, spec);
  const std::vector<RecipeRow> rows = co_await comparing;
  for (const RecipeRow& row : rows) EXPECT_TRUE(row.verified) << row.recipe << " " << row.failure;
}

TEST(RecipeComparison, runs_on_threads) {
  const RecipeComparisonSpec spec = small_comparison({"dense", "topk:5%"});
  run_threads(3, [&](Communicator& communicator) {
    Task<> program = compare_and_check(communicator, spec);
    communicator.engine()->spawn(program);
    communicator.engine()->progress_until([&] { return program.done(); });
  });
}

TEST(ModelShapes, have_as_many_values_as_the_networks) {
  EXPECT_EQ(values_of(parameters_of_model("vgg16")), 14'728'266u);
  EXPECT_EQ(values_of(parameters_of_model("resnet20")), 269'722u);
  EXPECT_EQ(values_of(parameters_of_model("lstm")), 66'034'000u);
  EXPECT_TRUE(parameters_of_model("alexnet").empty());
  for (const ModelShapes& model : model_shapes()) {
    const auto parameters = model.parameters();
    EXPECT_EQ(parameters[parameters.size() - 2].role, gradient::Role::output);
    EXPECT_NE(model.summary.find(std::to_string(parameters.size()) + " parameters"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace tulle::measure
