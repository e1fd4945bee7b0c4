// How much memory there is, so that what asks for more is refused before the system ends the process for it.
#pragma once

#include <cstdint>
#include <string>

#pragma GCC visibility push(default)
namespace tulle {

/// Of this machine, all of it.
std::uint64_t machine_memory_bytes();

/// Throws system where `bytes` are more than the machine has: "<what> takes 68 GB, and this machine has 8 GB". Memory
/// that is there in name only is given to whoever asks, and the process ends without a word when it is used.
void require_memory(std::uint64_t bytes, const std::string& what);

}  // namespace tulle
#pragma GCC visibility pop
