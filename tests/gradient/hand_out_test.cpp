// How updates are handed out: as streams, or written to arrays, which goes other ways for the sake of speed.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "stream/array_writer.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/gradient/synchronizer.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::gradient {
namespace {

using Values = std::vector<float>;

// Cheap, because millions are needed: the high bits of multiples of an odd number are spread evenly enough.
Values random_gradient(std::size_t size, std::uint64_t seed) {
  Values values(size);
  std::uint64_t state = seed * 0xBF58476D1CE4E5B9u;
  for (float& value : values)
    value = static_cast<float>(static_cast<std::int32_t>((state += 0x9E3779B97F4A7C15u) >> 32)) * 0x1p-31f;
  return values;
}

Values values_of(const Update& update) {
  const AnyStream dense = to_dense(update.stream, Op::sum());
  const std::span<const float> values = dense.values_buffer().as<float>();
  return {values.begin(), values.end()};
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

enum class HandOut { as_streams, to_arrays };

// The updates of all parameters of all steps, one after the other.
std::vector<Values> updates_of(int ranks, const std::string& recipe, const std::vector<Parameter>& parameters,
                               HandOut hand_out) {
  constexpr std::uint64_t kSteps = 3;
  std::vector<Values> updates;
  run_threads(ranks, [&](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, parameters, parse_recipe(recipe));
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      for (ParameterId id = 0; id < parameters.size(); ++id) {
        const std::uint64_t seed =
            (step * parameters.size() + id) * 8 + static_cast<std::uint64_t>(communicator.rank());
        synchronizer.start(id, random_gradient(parameters[id].size, seed));
      }
      synchronizer.end_step();
      for (ParameterId id = 0; id < parameters.size(); ++id) {
        Values update(parameters[id].size);
        if (hand_out == HandOut::to_arrays) synchronizer.finish_into(id, update);
        if (hand_out == HandOut::as_streams) update = values_of(synchronizer.finish(id));
        if (communicator.rank() == 0) updates.push_back(std::move(update));
      }
    }
  });
  return updates;
}

void expect_same(int ranks, const std::string& recipe, const std::vector<Parameter>& parameters) {
  const auto streams = updates_of(ranks, recipe, parameters, HandOut::as_streams);
  const auto arrays = updates_of(ranks, recipe, parameters, HandOut::to_arrays);
  ASSERT_EQ(streams.size(), arrays.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    ASSERT_TRUE(same_bits(streams[i], arrays[i])) << recipe << " on " << ranks << " ranks, update " << i;
  }
}

// Later steps tell what earlier ones left in accumulators and momenta.
TEST(HandOut, GivesTheSameBitsEitherWay) {
  const std::vector<Parameter> parameters{{"a", 20'011}, {"b", 70}, {"c", 1'000, Role::bias_or_norm}};
  for (const int ranks : {1, 2, 3}) {
    for (const Preset& preset : presets()) {
      if (preset.name != "noop") expect_same(ranks, std::string(preset.name), parameters);
    }
    expect_same(ranks, "local2|outer_rate:0.3", parameters);
    expect_same(ranks, "dense|outer:momentum|outer_momentum:0.7", parameters);
  }
}

TEST(HandOut, GivesTheSameBitsOfArraysLargerThanTheCache) {
  const std::vector<Parameter> parameters{{"large", kPastCacheBytes / sizeof(float) - 70}, {"small", 77}};
  for (const char* const recipe : {"three_lc", "local2|outer_rate:0.3"}) expect_same(1, recipe, parameters);
}

// On one rank what is handed out may be the memory that the next gradient goes to.
TEST(HandOut, UpdatesStayWhatTheyAreWhenTheNextStepBegins) {
  const std::vector<Parameter> parameters{{"a", 20'011}, {"b", 70}, {"c", 80}};
  const auto step = [&](Synchronizer& synchronizer, std::uint64_t seed) {
    for (ParameterId id = 0; id < parameters.size(); ++id) {
      synchronizer.start(id, random_gradient(parameters[id].size, seed + id));
    }
    synchronizer.end_step();
    std::vector<Update> updates;
    for (ParameterId id = 0; id < parameters.size(); ++id) updates.push_back(synchronizer.finish(id));
    return updates;
  };
  for (const Preset& preset : presets()) {
    run_threads(1, [&](Communicator& communicator) {
      Synchronizer synchronizer = Synchronizer::make(communicator, parameters, preset.recipe);
      const std::vector<Update> updates = step(synchronizer, 1);
      std::vector<Values> before;
      for (const Update& update : updates) before.push_back(values_of(update));
      step(synchronizer, 100);
      for (std::size_t i = 0; i < updates.size(); ++i) {
        ASSERT_TRUE(same_bits(values_of(updates[i]), before[i])) << preset.name << ' ' << parameters[i].name;
      }
    });
  }
}

}  // namespace
}  // namespace tulle::gradient
