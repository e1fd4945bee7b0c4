// What the network itself counted, to hold against what the library says it sent.
#pragma once

#include <cstdint>
#include <optional>

namespace tulle::measure {

/// True in a lab (lab/README.md), on all ranks or on none: TULLE_LAB_INTERFACE names the link of this host.
bool has_wire_counter();

/// Bytes that have left this host since the lab was made, headers included. 0 on all ranks of a host but its first,
/// so that a sum over ranks counts each link once. REQUIRES: has_wire_counter().
std::uint64_t wire_bytes_sent();

}  // namespace tulle::measure
