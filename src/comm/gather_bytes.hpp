// Few bytes from everyone to everyone, inside an operation: what splits and the control plane are made of.
#pragma once

#include "tulle/comm/operation.hpp"

namespace tulle {

/// Every rank's bytes, by rank, in ⌈log2 P⌉ rounds (Bruck) that use the steps from `first_step` on. Throws bad_message
/// where a peer sends another number of pieces than it should.
Task<PoolVector<Buffer>> gather_bytes(Operation& operation, Buffer mine, Step first_step);

/// Ends when all ranks have come here: ⌈log2 P⌉ rounds of empty messages, in the steps from `first_step` on.
Task<> meet(Operation& operation, Step first_step);

}  // namespace tulle
