// Gradients that have sizes and no values travel as those that have both.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {
namespace {

constexpr int kRanks = 6, kSteps = 2;

const std::vector<Parameter> kParameters = {{"first", 60'000, Role::hidden, 200},
                                            {"bias", 300, Role::bias_or_norm},
                                            {"norm", 500, Role::bias_or_norm},
                                            {"output", 40'000, Role::output, 100}};

struct Travelled {
  double bytes = 0;
  double delivered = 0;
  double seconds = 0;
};

std::vector<float> gradient_of(std::size_t size, std::uint64_t seed) {
  Philox random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.uniform() - random.uniform());
  return values;
}

Task<> train(Communicator& communicator, const Recipe& recipe, bool phantoms, Travelled& travelled) {
  Task<Synchronizer> making = Synchronizer::await_make(communicator, kParameters, recipe, {.phantoms = phantoms});
  Synchronizer synchronizer = co_await making;
  for (int step = 0; step < kSteps; ++step) {
    for (ParameterId id = 0; id < kParameters.size(); ++id) {
      const auto seed = static_cast<std::uint64_t>(1000 * step + 10 * communicator.rank()) + id;
      if (phantoms) {
        synchronizer.start_phantom(id);
      } else {
        synchronizer.start(id, gradient_of(kParameters[id].size, seed));
      }
    }
    synchronizer.end_step();
    for (ParameterId id = 0; id < kParameters.size(); ++id) {
      Task<Update> finishing = synchronizer.await_finish(id);
      const Update update = co_await finishing;
      EXPECT_EQ(update.stream.is_phantom(), phantoms && recipe.exchange != Exchange::none) << kParameters[id].name;
      if (communicator.rank() > 0) continue;
      travelled.bytes += static_cast<double>(synchronizer.stats(id).bytes_sent);
      travelled.delivered += static_cast<double>(synchronizer.stats(id).delivered);
    }
  }
}

Travelled travel(const Recipe& recipe, bool phantoms) {
  Travelled travelled;
  SimWorld world({.ranks = kRanks, .network = preset_network("gige")});
  world.run([&](Communicator& communicator) { return train(communicator, recipe, phantoms, travelled); });
  travelled.seconds = world.elapsed_seconds();
  return travelled;
}

class Phantoms : public testing::TestWithParam<const char*> {};

TEST_P(Phantoms, travel_as_gradients_do) {
  const Recipe recipe = parse_recipe(GetParam());
  const Travelled real = travel(recipe, false), phantom = travel(recipe, true);
  EXPECT_GT(phantom.bytes, 0);
  EXPECT_NEAR(phantom.bytes / real.bytes, 1, 0.05) << real.bytes;
  EXPECT_NEAR(phantom.delivered / real.delivered, 1, 0.05) << real.delivered;
  EXPECT_NEAR(phantom.seconds / real.seconds, 1, 0.1) << real.seconds;
}

INSTANTIATE_TEST_SUITE_P(Recipes, Phantoms,
                         testing::Values("dense", "fp16", "qsgd:4", "topk:1%", "topk:16/512|qsgd:4", "spardl:1%",
                                         "gtopk:1%", "powersgd", "one_bit", "redsync_quantized:1%|dense_below:0",
                                         "redsync:1%|exchange:gather|row:auto", "diloco"),
                         [](const auto& info) { return fmt::format("recipe{}", info.index); });

TEST(PhantomsAndGradients, are_told_apart) {
  SimWorld world({.ranks = 1});
  world.run([](Communicator& communicator) -> Task<> {
    Task<Synchronizer> making_phantoms =
        Synchronizer::await_make(communicator, kParameters, parse_recipe("dense"), {.phantoms = true});
    Synchronizer phantoms = co_await making_phantoms;
    const std::vector<float> gradient(kParameters[0].size);
    EXPECT_THROW(phantoms.start(0, gradient), Error);
    const SynchronizerOptions later{.first_channel = phantoms.end_channel()};
    Task<Synchronizer> making = Synchronizer::await_make(communicator, kParameters, parse_recipe("dense"), later);
    Synchronizer gradients = co_await making;
    EXPECT_THROW(gradients.start_phantom(0), Error);
  });
}

}  // namespace
}  // namespace tulle::gradient
