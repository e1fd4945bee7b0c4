// Ranks compare what they registered.
#pragma once

#include <span>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// require_same_settings() of all that is registered. What it is given must outlive the task.
Task<> agree(Communicator& communicator, std::span<const Parameter> parameters, const Recipe& recipe,
             const SynchronizerOptions& options);

}  // namespace tulle::gradient
