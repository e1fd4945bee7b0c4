// What a whole step of each recipe takes on one rank, without a network, beside plain passes over the same memory.
//
// How it works. One parameter of as many values as VGG-16 has goes through start() and finish() on a communicator
// of one rank: accumulate, select, code, decode, apply. Beside each step, in turns, arrays of that size are copied;
// half of a copy is what one *pass*, a read or a write of such an array, takes. docs/recipes.md counts the passes that
// a recipe cannot avoid; the ratio is the step's time by theirs. Then the same values are registered as 1,000
// parameters: what that takes longer is the *overhead* of parameters. Times are the processor's, so that other programs
// count less.
//
//   tulle_recipe_passes [--values N] [--repeats N] [RECIPE...]

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "tulle/base/philox.hpp"
#include "tulle/base/quartiles.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/gradient/synchronizer.hpp"

namespace {

using namespace tulle;
using Values = std::vector<float>;

struct Settings {
  std::size_t values = 14'728'266;
  int repeats = 9;
};

// Cubes have the heavy tails that gradients have.
Values gradient_of(std::size_t count) {
  Philox random(1);
  Values values(count);
  for (float& value : values) {
    const double uniform = 2 * random.uniform() - 1;
    value = static_cast<float>(uniform * uniform * uniform);
  }
  return values;
}

template <class Work>
double processor_seconds(Work work) {
  const std::clock_t began = std::clock();
  work();
  return static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
}

double copy_seconds(const Values& from, Values& to) {
  return processor_seconds([&] { std::ranges::copy(from, to.begin()); });
}

std::vector<gradient::Parameter> parameters_of(std::size_t values, std::size_t count) {
  std::vector<gradient::Parameter> parameters;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = values * (i + 1) / count - values * i / count;
    parameters.push_back({.name = fmt::format("parameter{}", i), .size = size});
    if (size % 2 == 0) parameters.back().rows = 2;
  }
  return parameters;
}

bool selects(const gradient::Recipe& recipe) {
  return recipe.selector != "none" || recipe.exchange == gradient::Exchange::accumulator;
}

double step_seconds(gradient::Synchronizer& synchronizer, const Values& gradient, Values& update) {
  const auto parameters = synchronizer.parameters();
  return processor_seconds([&] {
    std::size_t first = 0;
    for (gradient::ParameterId id = 0; id < parameters.size(); first += parameters[id++].size) {
      synchronizer.start(id, std::span(gradient).subspan(first, parameters[id].size));
    }
    synchronizer.end_step();
    first = 0;
    for (gradient::ParameterId id = 0; id < parameters.size(); first += parameters[id++].size) {
      // An update of few values is applied as it is; to write it to a dense array would be one more pass.
      if (selects(synchronizer.recipe())) {
        (void)synchronizer.finish(id);
      } else {
        synchronizer.finish_into(id, std::span(update).subspan(first, parameters[id].size));
      }
    }
  });
}

// Medians over steps that take turns with copies. The first steps fill the pool and find thresholds.
struct Measured {
  double step = 0, pass = 0;
};
Measured measure(const Settings& settings, const gradient::Recipe& recipe, std::size_t count) {
  constexpr int kFirst = 3;
  std::vector<double> steps, passes;
  run_threads(1, [&](Communicator& communicator) {
    gradient::Synchronizer synchronizer =
        gradient::Synchronizer::make(communicator, parameters_of(settings.values, count), recipe);
    const Values gradient = gradient_of(settings.values);
    Values update(settings.values);
    for (int step = 0; step < kFirst + settings.repeats; ++step) {
      const double pass = copy_seconds(gradient, update) / 2, seconds = step_seconds(synchronizer, gradient, update);
      if (step < kFirst) continue;
      passes.push_back(pass);
      steps.push_back(seconds);
    }
  });
  return {quartiles(steps).median, quartiles(passes).median};
}

void compare(const Settings& settings, const std::string& text) {
  const gradient::Recipe recipe = gradient::parse_recipe(text);
  const gradient::Preset& preset = gradient::find_preset(text.substr(0, text.find_first_of(":|")));
  const double passes = std::atof(std::string(preset.passes).c_str());
  const Measured one = measure(settings, recipe, 1), many = measure(settings, recipe, 1000);
  fmt::print("{:<28} {:>9.2f} {:>9.2f} {:>7.0f} {:>7.2f} {:>12.2f}\n", text, 1e3 * one.step, 1e3 * one.pass, passes,
             one.step / (passes * one.pass), 1e3 * (many.step - one.step));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  std::vector<std::string> recipes;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--values" && i + 1 < count) {
      settings.values = std::strtoull(arguments[++i], nullptr, 10);
    } else if (argument == "--repeats" && i + 1 < count) {
      settings.repeats = std::atoi(arguments[++i]);
    } else if (argument.starts_with("-")) {
      fmt::print(
          "usage: tulle_recipe_passes [--values N] [--repeats N] [RECIPE]...; all presets where none is named\n");
      return argument == "--help" ? 0 : 2;
    } else {
      recipes.push_back(argument);
    }
  }
  if (recipes.empty()) {
    for (const gradient::Preset& preset : gradient::presets()) recipes.emplace_back(preset.name);
  }
  try {
    for (const std::string& recipe : recipes) gradient::parse_recipe(recipe);
    fmt::print("{} values on one rank; times in ms, medians of {}\n", settings.values, settings.repeats);
    fmt::print("{:<28} {:>9} {:>9} {:>7} {:>7} {:>12}\n", "recipe", "step", "pass", "passes", "ratio", "1000 params");
    for (const std::string& recipe : recipes) compare(settings, recipe);
  } catch (const Error& error) {
    fmt::print(stderr, "tulle_recipe_passes: {}\n", error.what());
    return 2;
  }
}
