// At which of its addresses a host is offered to the others.
#pragma once

#include <string>
#include <vector>

#include "comm/tcp/socket.hpp"

namespace tulle {

struct Offer {
  SocketAddress listen;                  ///< where to listen: one address, or all of the machine's
  std::vector<SocketAddress> addresses;  ///< where the others try; ports are not set
};

/// `interface` is a name, an address, or empty: then the route to `meeting_host` decides, and where that is empty, or a
/// name for this host alone, all addresses are offered. A `meeting_host` that cannot be resolved is asked for again
/// until the deadline. Throws deadline naming it, bad_input naming an interface that there is not.
Offer offer_addresses(const std::string& interface, const std::string& meeting_host,
                      const Deadline& deadline = Deadline(0));

/// The addresses of `theirs` in the order in which to try them: on the same host its loopback first, else those that
/// share the most leading bits with one of `mine`, without loopbacks.
std::vector<SocketAddress> order_addresses(const std::vector<SocketAddress>& theirs,
                                           const std::vector<SocketAddress>& mine, bool on_same_host);

}  // namespace tulle
