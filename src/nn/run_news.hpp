// What all ranks of a training with a parameter server have to know before they read or write checkpoints.
//
// Rank 0 holds the lock and draws the run's number (base/generations.hpp), and tells the others by datagrams: a worker
// that dies must not keep them from beginning, as it would in a collective.
#pragma once

#include <cstdint>
#include <string>

#include "tulle/comm/datagram.hpp"

namespace tulle::nn {

/// Two of them, in this order: the number of this run, and that of the run that it goes on from (0: of none).
void send_run(DatagramPort& port, int to, std::uint64_t run);
/// In place of the first: why there is no run.
void send_refusal(DatagramPort& port, int to, const std::string& why);
/// Throws bad_input with rank 0's reason, peer_failed where it is gone, and deadline.
std::uint64_t receive_run(DatagramPort& port, double seconds);

}  // namespace tulle::nn
