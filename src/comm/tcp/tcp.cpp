#include "tulle/comm/tcp.hpp"

#include <cstdlib>
#include <memory>

#include "comm/tcp/tcp_transport.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle {
namespace {

Heartbeat heartbeat_of(const TcpOptions& options) {
  const char* const text = std::getenv(kHeartbeatVariable);
  if (options.heartbeat != Heartbeat() || text == nullptr || *text == 0) return complete_heartbeat(options.heartbeat);
  return parse_heartbeat(text, kHeartbeatVariable);
}

}  // namespace

Communicator connect(Rendezvous& rendezvous, const TcpOptions& options) {
  const Heartbeat heartbeat = heartbeat_of(options);  // may throw: before anybody is met
  auto transport = std::make_unique<TcpTransport>(rendezvous, options);
  const bool profile_is_wanted = transport->profile_is_wanted();
  Communicator communicator(std::move(transport));
  communicator.start_heartbeat(heartbeat);
  if (profile_is_wanted) {
    const char* const path = std::getenv(kProfileVariable);
    load_profile(communicator, path != nullptr ? path : "");
  }
  return communicator;
}

Communicator connect(const TcpOptions& options) {
  const auto rendezvous = environment_rendezvous(options.deadline_seconds);
  return connect(*rendezvous, options);
}

}  // namespace tulle
