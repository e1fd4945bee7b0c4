#include <gtest/gtest.h>

#include "tulle/base/error.hpp"
#include "tulle/gradient/recipe.hpp"

namespace tulle::gradient {
namespace {

std::string refusal_of(std::string_view text) {
  try {
    (void)parse_recipe(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Recipe, APresetIsValidAndKnownByItsName) {
  for (const Preset& preset : presets()) {
    EXPECT_NO_THROW(validate(preset.recipe)) << preset.name;
    EXPECT_EQ(parse_recipe(preset.name), preset.recipe);
    EXPECT_EQ(to_string(preset.recipe), preset.name);
    EXPECT_EQ(&find_preset(preset.name), &preset);
    EXPECT_FALSE(preset.summary.empty() || preset.sends.empty() || preset.passes.empty()) << preset.name;
  }
}

TEST(Recipe, KnobsNeedNoNameWhereThereIsOneThatEverybodyWants) {
  EXPECT_DOUBLE_EQ(parse_recipe("topk:1%").density, 0.01);
  EXPECT_DOUBLE_EQ(parse_recipe("redsync:density=0.1%").density, 0.001);
  const Recipe bucketed = parse_recipe("topk:16/512");
  EXPECT_EQ(bucketed.selector, "bucketed_top_k");
  EXPECT_EQ(bucketed.keep, 16u);
  EXPECT_EQ(bucketed.bucket, 512u);
  EXPECT_EQ(parse_recipe("topk:16/512,randomized").form, BucketForm::randomized);
  EXPECT_EQ(parse_recipe("qsgd:2").values.bits, 2);
  EXPECT_EQ(parse_recipe("diloco:every=30").every, 30u);
  EXPECT_EQ(parse_recipe("spardl:1%,teams=2,residual=partial").residual, ResidualMode::partial);
}

TEST(Recipe, StagesChangeWhatComesBeforeThem) {
  const Recipe recipe = parse_recipe("topk:1%|qsgd:4|no_ef");
  EXPECT_EQ(recipe.values.coding, ValueCoding::qsgd);
  EXPECT_EQ(recipe.values.bits, 4);
  EXPECT_FALSE(recipe.error_feedback);
  EXPECT_EQ(parse_recipe("topk|qsgd:bits=8,norm=max").values.norm, ScaleNorm::max);
  EXPECT_EQ(parse_recipe("dense|fp16|row:dense_split_allgather").values.coding, ValueCoding::f16);
}

TEST(Recipe, ARowChangesWhatIsSummedAndNothingElse) {
  EXPECT_EQ(parse_recipe("powersgd|row:dense_ring").exchange, Exchange::low_rank);
  EXPECT_EQ(to_string(parse_recipe("powersgd|row:dense_ring")), "powersgd|row:dense_ring");
  EXPECT_EQ(parse_recipe("spardl|row:dense_ring|no_ef").exchange, Exchange::sum);
  EXPECT_NE(refusal_of("noop|row:dense_ring").find("sends nothing"), std::string::npos);
}

TEST(Recipe, WhatWouldBeLostWithoutAWordIsRefused) {
  EXPECT_NE(refusal_of("topk|indices:foo").find("no index coding is called 'foo'"), std::string::npos);
  EXPECT_NE(refusal_of("topk|bits:4").find("has no such option"), std::string::npos);
  EXPECT_NE(refusal_of("topk:s=1.5").find("has no such option"), std::string::npos);
  for (const char* const nothing : {"topk:0/512", "topk:keep=0/512", "topk|keep:0", "dense|keep:0/64"}) {
    EXPECT_NE(refusal_of(nothing).find("sends nothing; expected 1 or more"), std::string::npos) << nothing;
  }
  EXPECT_EQ(parse_recipe("sparseloco|keep:0|selector:exact_top_k|density:1%").keep, 0u);
  EXPECT_EQ(parse_recipe("topk|qsgd|bits:2").values.bits, 2);
  EXPECT_FALSE(parse_recipe("topk|no_ef").error_feedback);
  EXPECT_TRUE(parse_recipe("topk|no_ef:off").error_feedback);
}

TEST(Recipe, AdaptiveIsShortForAField) {
  EXPECT_TRUE(parse_recipe("adaptive:topk:1%").adaptive);
  EXPECT_EQ(parse_recipe("adaptive:topk:1%|qsgd:4"), parse_recipe("topk:1%|qsgd:4|adaptive"));
  EXPECT_DOUBLE_EQ(parse_recipe("adaptive:topk:2%").density, 0.02);
}

TEST(Recipe, WhoeverSelectsKeepsTheRestUnlessToldOtherwise) {
  EXPECT_TRUE(parse_recipe("dense|selector:exact_top_k").error_feedback);
  EXPECT_FALSE(parse_recipe("dense|selector:exact_top_k|no_ef").error_feedback);
  EXPECT_TRUE(parse_recipe("dense|row:spardl").error_feedback);
}

TEST(Recipe, TextAndJsonGiveTheSameRecipeBack) {
  for (const char* const text :
       {"dense|selector:exact_top_k|no_ef", "topk:16/512,randomized|momentum:0.9|masking|nesterov",
        "redsync:0.3%|clip:2", "topk:0.1%|warm_up:densities|warm_up_steps:40|decay:0.95",
        "spardl:2%,teams=4,residual=local", "qsgd:8|coded:sums", "three_lc:1.5", "powersgd:2|no_ef",
        "sparseloco:7|clipping:none", "redsync_quantized:1%|masking:off|indices:rice",
        "diloco:7|outer:momentum|outer_rate:0.25", "gtopk|aggregate:sum|density:0.5", "adaptive:redsync:1%",
        "adaptive:topk:2%|energy:0.9|qsgd:4"}) {
    const Recipe recipe = parse_recipe(text);
    EXPECT_EQ(parse_recipe(to_string(recipe)), recipe) << text << " became " << to_string(recipe);
    EXPECT_EQ(recipe_from_json(to_json(recipe)), recipe) << text << " became " << to_json(recipe);
  }
}

TEST(Recipe, JsonMayStartFromAPreset) {
  const Recipe recipe = recipe_from_json(R"({"preset": "redsync", "density": 0.002, "masking": false})");
  EXPECT_EQ(recipe, parse_recipe("redsync:0.2%|masking:off"));
  EXPECT_THROW((void)recipe_from_json("[]"), Error);
  EXPECT_THROW((void)recipe_from_json(R"({"colour": "red"})"), Error);
  EXPECT_THROW((void)recipe_from_json(R"({"density": [1]})"), Error);
}

TEST(Recipe, WhatDoesNotGoTogetherIsRefusedWithTheReason) {
  EXPECT_NE(refusal_of("topk|masking").find("momentum"), std::string::npos);
  EXPECT_NE(refusal_of("topk|nesterov").find("momentum"), std::string::npos);
  EXPECT_NE(refusal_of("dense|momentum:0.9|masking").find("delivers every value"), std::string::npos);
  EXPECT_NE(refusal_of("dense|ef").find("delivers every value"), std::string::npos);
  EXPECT_NE(refusal_of("topk|no_ef|decay:0.9").find("error_feedback"), std::string::npos);
  EXPECT_NE(refusal_of("topk:16/512|reuse:5").find("threshold"), std::string::npos);
  EXPECT_NE(refusal_of("spardl|selector:exact_top_k").find("selects by itself"), std::string::npos);
  EXPECT_NE(refusal_of("spardl|no_ef").find("error_feedback"), std::string::npos);
  EXPECT_NE(refusal_of("topk|teams:2").find("spardl"), std::string::npos);
  EXPECT_NE(refusal_of("topk|residual:local").find("rows that select"), std::string::npos);
  EXPECT_NE(refusal_of("dense|one_bit_mqe").find("has to be kept"), std::string::npos);
  EXPECT_NE(refusal_of("topk|row:ssar_recursive_double|qsgd:4").find("as they are"), std::string::npos);
  EXPECT_NE(refusal_of("noop|qsgd").find("sends nothing"), std::string::npos);
  EXPECT_NE(refusal_of("topk|warm_up:dense").find("warm_up_steps"), std::string::npos);
  EXPECT_NE(refusal_of("three_lc|no_ef").find("has to be kept"), std::string::npos);
  EXPECT_NE(refusal_of("three_value_stochastic|ef").find("stochastic_feedback"), std::string::npos);
  EXPECT_EQ(refusal_of("three_value_stochastic|ef|stochastic_feedback"), "");
  EXPECT_NE(refusal_of("redsync_quantized|reuse:5").find("alternate_signs"), std::string::npos);
  EXPECT_NE(refusal_of("redsync_quantized|alternate_signs:off").find("one sign"), std::string::npos);
  EXPECT_NE(refusal_of("topk:16/512|alternate_signs").find("by no sign"), std::string::npos);
  EXPECT_NE(refusal_of("topk|aggregate:mean_of_senders").find("exchange gather"), std::string::npos);
  EXPECT_NE(refusal_of("three_lc|clipping:median_norm").find("mean_of_senders"), std::string::npos);
  EXPECT_NE(refusal_of("topk|row:dense_ring|exchange:gather").find("dense_ring"), std::string::npos);
  EXPECT_NE(refusal_of("powersgd|qsgd").find("thin matrices"), std::string::npos);
  EXPECT_NE(refusal_of("powersgd:0").find("rank"), std::string::npos);
  EXPECT_NE(refusal_of("sparseloco|no_ef|decay:1").find("has to be kept"), std::string::npos);
  EXPECT_NE(refusal_of("topk|selector:threshold_filter").find("reuse"), std::string::npos);
  EXPECT_NE(refusal_of("adaptive:dense").find("sends everything"), std::string::npos);
  EXPECT_NE(refusal_of("adaptive:noop").find("sends everything or nothing"), std::string::npos);
  EXPECT_NE(refusal_of("dense|energy:0.5").find("select by a density"), std::string::npos);
  EXPECT_NE(refusal_of("topk:16/512|energy:0.5").find("select by a density"), std::string::npos);
  EXPECT_NE(refusal_of("redsync|energy:0.5").find("reuse"), std::string::npos);
  EXPECT_NE(refusal_of("topk|energy:1.5").find("energy"), std::string::npos);
  EXPECT_NE(refusal_of("topk|energy:0.5|warm_up:densities|warm_up_steps:4").find("warm_up"), std::string::npos);
}

TEST(Recipe, WhatIsNotUnderstoodIsNamed) {
  EXPECT_NE(refusal_of("topq").find("'topq'"), std::string::npos);
  EXPECT_NE(refusal_of("topk:0").find("density"), std::string::npos);
  EXPECT_NE(refusal_of("topk:150%").find("density"), std::string::npos);
  EXPECT_NE(refusal_of("topk:many").find("'many'"), std::string::npos);
  EXPECT_NE(refusal_of("topk|colour:red").find("'colour'"), std::string::npos);
  EXPECT_NE(refusal_of("topk|warm_up:cold").find("densities"), std::string::npos);
  EXPECT_NE(refusal_of("noop:3").find("noop"), std::string::npos);
  EXPECT_NE(refusal_of("").find("no recipe"), std::string::npos);
}

}  // namespace
}  // namespace tulle::gradient
