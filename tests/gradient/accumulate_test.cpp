// What one pass over a gradient finds.
#include "gradient/accumulate.hpp"

#include <cmath>
#include <limits>

#include "gradient/training.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

// Squares of small and of large values are no numbers of f32.
TEST(Inspection, FindsNormsOfAnyScale) {
  for (const std::size_t count : {1u, 15u, 5000u}) {
    for (const float scale : {1e-44f, 1e-30f, 1e-23f, 1e-19f, 1e-10f, 1.0f, 1e18f, 1e30f, 1e38f}) {
      Values values = float_gradient(count, 0, 3, 0);
      double squares = 0;
      for (float& value : values) {
        value *= scale;
        squares += static_cast<double>(value) * static_cast<double>(value);
      }
      ASSERT_NEAR(inspect(values).norm, std::sqrt(squares), 1e-5 * std::sqrt(squares)) << count << " of " << scale;
    }
  }
  EXPECT_EQ(inspect(Values(5000)).norm, 0);
}

TEST(Inspection, FindsTheFirstValueThatIsNotFiniteAmongSmallOnes) {
  Values values(5000, 1e-30f);
  values[4100] = std::numeric_limits<float>::quiet_NaN();
  values[4200] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(inspect(values).not_finite_at, 4100u);
}

// A gradient of 1e-25 is cut to a bound of 1e-27, as one of 1 is to 0.01.
TEST(Inspection, ClipsSmallGradientsAsOthers) {
  Training training{.ranks = 1, .recipe = parse_recipe("dense"), .parameters = {{"w", 100}}};
  training.recipe.clip = 1e-27;
  training.gradient = [](int, std::uint64_t, ParameterId) { return Values(100, 1e-26f); };
  const Trained trained = train(training);
  EXPECT_NEAR(inspect(trained.updates[0][0][0]).norm, 1e-27, 1e-32);
  EXPECT_NEAR(trained.stats[0][0].gradient_norm, 1e-25, 1e-30);
}

}  // namespace
}  // namespace tulle::gradient
