#include "cli/bench/link_speed.hpp"

#include <nlohmann/json.hpp>

#include "measure/machine.hpp"

namespace tulle::cli {

std::optional<double> link_seconds_per_byte(const LaunchOptions& launch, const Communicator& communicator) {
  if (launch.transport == TransportChoice::sim) return communicator.profile().beta_seconds_per_byte;
  const nlohmann::json lab = nlohmann::json::parse(measure::this_machine().lab, nullptr, false);
  if (!lab.is_object() || !lab.contains("up_bits") || !lab["up_bits"].is_number()) return std::nullopt;
  return 8 / lab["up_bits"].get<double>();
}

}  // namespace tulle::cli
