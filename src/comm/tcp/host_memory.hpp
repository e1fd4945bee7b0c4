// What processes of one host can do without the network: know that they share it, and read each other's memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/tcp/token.hpp"

namespace tulle {

/// Equal for processes of one running machine in one network namespace. The namespace counts because containers, and
/// the hosts of a network that is emulated on one machine, share the boot but must talk through their network.
std::string host_identity();
/// The part of it that names the machine: equal for processes that share cores, whatever their networks.
std::string_view machine_of(std::string_view host_identity);

/// Memory of another process, named as that process told it.
struct RemoteMemory {
  pid_t process = 0;
  std::uint64_t address = 0;
};

/// Copies from another process. False, with errno set, where it is not all there or not allowed.
bool read_memory(const RemoteMemory& from, std::byte* to, std::size_t bytes);
/// True where `from` holds `expected`: the process is the one that is meant, and may be read.
bool can_read(const RemoteMemory& from, const Token& expected);

}  // namespace tulle
