#include "gradient/agreement.hpp"

#include <fmt/format.h>

#include "tulle/comm/settings.hpp"

namespace tulle::gradient {
namespace {

std::vector<Setting> settings_of(const SynchronizerOptions& options) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {{"non_finite", text(static_cast<int>(options.non_finite))},
          {"seed", text(options.seed)},
          {"first_channel", text(options.first_channel)},
          {"fuse_below", text(options.fuse_below)},
          {"fuse_values", text(options.fuse_values)},
          {"boundaries", text(static_cast<int>(options.boundaries))},
          {"reproducible", text(options.reproducible)},
          {"replica_check_every", text(options.replica_check_every)},
          {"weights_check_every", text(options.weights_check_every)},
          {"residual_norms", text(options.residual_norms)},
          {"undo", text(options.undo)},
          {"phantoms", text(options.phantoms)}};
}

}  // namespace

Task<> agree(Communicator& communicator, std::span<const Parameter> parameters, const Recipe& recipe,
             const SynchronizerOptions& options) {
  std::vector<Setting> settings = settings_of(options);
  settings.insert(settings.begin(), {"recipe", to_string(recipe)});
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    settings.push_back(
        {fmt::format("parameter {}", i), fmt::format("{} of {} values, {}, {} rows", parameter.name, parameter.size,
                                                     to_string(parameter.role), parameter.rows)});
  }
  Request<void> comparing = irequire_same_settings(communicator, settings);
  co_await comparing;
}

}  // namespace tulle::gradient
