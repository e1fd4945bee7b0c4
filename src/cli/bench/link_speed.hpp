// How fast the links of a job are, where that is known.
#pragma once

#include <optional>

#include "cli/common/launch.hpp"
#include "tulle/comm/communicator.hpp"

namespace tulle::cli {

/// What a byte takes on a rank's link: in a lab with a rank on each host, and in simulation.
std::optional<double> link_seconds_per_byte(const LaunchOptions& launch, const Communicator& communicator);

}  // namespace tulle::cli
