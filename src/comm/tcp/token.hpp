// Secrets that travel in the rendezvous: who knows a rank's token is a member of the job.
#pragma once

#include <array>
#include <cstddef>

namespace tulle {

using Token = std::array<std::byte, 32>;

/// From the kernel's generator. Throws system.
Token random_token();
/// Takes the same time wherever they differ, so that a stranger learns nothing from how long a refusal takes.
bool equal_in_constant_time(const Token& a, const Token& b);

}  // namespace tulle
