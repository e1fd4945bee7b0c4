// Counts calls of the global operator new in this executable.
#pragma once

#include <cstdint>

namespace tulle::testing {

std::uint64_t allocation_count();

}  // namespace tulle::testing
