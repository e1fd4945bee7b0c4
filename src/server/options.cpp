#include "tulle/server/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "server/agreement.hpp"
#include "tulle/base/error.hpp"

namespace tulle::server {
namespace {

using gradient::Aggregate;
using gradient::Exchange;
using gradient::OuterStep;
using gradient::WarmUp;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::bad_input, "parameter server: " + why); }

// The optimizer is the server's: a recipe that has one of its own would step twice.
void require_fits(const Recipe& recipe) {
  gradient::validate(recipe);
  const auto require = [&](bool holds, std::string_view what) {
    if (!holds) refuse(fmt::format("the recipe {} does not fit: {}", gradient::to_string(recipe), what));
  };
  require(recipe.exchange == Exchange::sum || recipe.exchange == Exchange::gather,
          "a worker codes what it sends by itself");
  require(recipe.momentum == 0 && recipe.weight_decay == 0 && recipe.clip == 0,
          "momentum, weight decay and clipping are the server's");
  require(recipe.outer == OuterStep::none || (recipe.outer == OuterStep::sgd && recipe.outer_rate == 1),
          "the outer step is the server's");
  require(recipe.aggregate == Aggregate::mean, "the server takes the mean");
  require(recipe.warm_up == WarmUp::none, "there is no warm-up");
  require(!recipe.alternate_signs && recipe.reuse == 1 && recipe.search_from == 0,
          "thresholds and signs are not kept between steps");
}

}  // namespace

void validate(const Options& options, int ranks) {
  if (options.servers < 1 || options.servers >= ranks) {
    refuse(fmt::format("{} servers among {} ranks: it takes at least one, and a worker", options.servers, ranks));
  }
  const int workers = ranks - options.servers;
  if (options.backup < 0 || options.backup >= workers) {
    refuse(fmt::format("{} backup workers of {}: a step needs at least one push", options.backup, workers));
  }
  if (!(options.deadline_seconds > 0)) refuse("deadline_seconds is not above 0");
  if (!(options.grace_seconds >= 0)) refuse("grace_seconds is below 0");
  if (options.grace_seconds > 0 && options.backup == 0) refuse("grace_seconds is for steps with backup workers");
  if (options.threads < 0) refuse("threads is below 0");
  require_fits(options.push);
  require_fits(pull_recipe(options));
}

std::vector<int> servers_of(std::span<const Parameter> parameters, int servers) {
  std::vector<std::size_t> by_size(parameters.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size, std::greater<>(), [&](std::size_t id) { return parameters[id].size; });
  std::vector<std::uint64_t> held(static_cast<std::size_t>(servers));
  std::vector<int> owners(parameters.size());
  for (const std::size_t id : by_size) {
    const auto least = std::ranges::min_element(held);
    *least += parameters[id].size;
    owners[id] = static_cast<int>(least - held.begin());
  }
  return owners;
}

Recipe pull_recipe(const Options& options) {
  Recipe recipe = options.pull.value_or(options.push);
  recipe.every = 1;
  recipe.outer = OuterStep::none;
  return recipe;
}

void require_parameters(std::span<const Parameter> parameters) {
  if (parameters.empty()) refuse("there are no parameters");
  std::vector<std::string_view> names;
  for (const Parameter& parameter : parameters) {
    if (parameter.name.empty()) refuse("a parameter has no name");
    if (parameter.size == 0) refuse(fmt::format("{} has no values", parameter.name));
    names.push_back(parameter.name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) refuse(fmt::format("two parameters are called {}", *twice));
}

std::string description_of(std::span<const Parameter> parameters, const Options& options) {
  std::string text =
      fmt::format("servers {}, backup {}, grace {} s, staleness {}, seed {}, push {}, pull {}, {} parameters\n",
                  options.servers, options.backup, options.grace_seconds, options.staleness, options.seed,
                  gradient::to_string(options.push), gradient::to_string(pull_recipe(options)), parameters.size());
  if (!options.job.empty()) text += options.job + "\n";
  for (const Parameter& parameter : parameters) {
    text += fmt::format("{} of {} values, {}\n", parameter.name, parameter.size, gradient::to_string(parameter.role));
  }
  return text;
}

std::string first_difference(std::string_view mine, std::string_view theirs) {
  while (mine != theirs) {
    const std::size_t my_line = mine.find('\n'), their_line = theirs.find('\n');
    const std::string_view first = mine.substr(0, my_line), second = theirs.substr(0, their_line);
    if (first != second) return fmt::format("the server has '{}', the worker '{}'", first, second);
    mine.remove_prefix(my_line + 1);
    theirs.remove_prefix(their_line + 1);
  }
  return "";
}

}  // namespace tulle::server
