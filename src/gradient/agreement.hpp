// Ranks compare what they registered.
#pragma once

#include <span>

#include "tulle/gradient/synchronizer.hpp"

namespace tulle::gradient {

/// Ends where all ranks gave the same; else throws mismatch on all of them, naming the first that differs. What it is
/// given must outlive the task. One round of two numbers; lists travel only where they differ.
Task<> agree(Communicator& communicator, std::span<const Parameter> parameters, const Recipe& recipe,
             const SynchronizerOptions& options);

}  // namespace tulle::gradient
