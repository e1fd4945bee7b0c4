#include "base/memory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "tulle/base/error.hpp"

namespace tulle {

std::uint64_t machine_memory_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void require_memory(std::uint64_t bytes, const std::string& what) {
  const std::uint64_t all = machine_memory_bytes();
  if (bytes <= all) return;
  constexpr double kGigabyte = 1e9;
  throw Error(ErrorKind::system,
              fmt::format("{} takes {:.3g} GB, and this machine has {:.3g} GB", what,
                          static_cast<double>(bytes) / kGigabyte, static_cast<double>(all) / kGigabyte));
}

}  // namespace tulle
