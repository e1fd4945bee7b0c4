// Addresses and sockets of IPv4 and IPv6, all non-blocking and closed on exec.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/clock.hpp"
#include "comm/tcp/fd.hpp"

namespace tulle {

/// "bind: Address already in use".
std::string describe_errno(std::string_view call, int code);
/// Throws system with describe_errno() of the current errno.
[[noreturn]] void throw_errno(std::string_view call);

/// An address of IPv4 or IPv6 and a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// REQUIRES: the family is AF_INET or AF_INET6.
  SocketAddress(const sockaddr* address, socklen_t length);
  /// Every address of the machine, of the family that takes both where the machine has it.
  static SocketAddress any();
  /// "10.1.2.3" or "fe80::1"; nothing for anything else, such as a name.
  static std::optional<SocketAddress> from_numbers(const std::string& host, std::uint16_t port);
  /// What a name or an address stands for. Throws bad_input naming it.
  static std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port);
  /// The same, asked again until the deadline: names of hosts that have just started may take a while to appear.
  /// Throws deadline.
  static std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, const Deadline& deadline);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const;
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  /// Without the port.
  std::string host() const;
  /// "10.1.2.3:80", "[::1]:80".
  std::string text() const;
  bool is_loopback() const;
  bool is_link_local() const;

 private:
  sockaddr_storage storage_ = {};
};

struct PortRange {
  std::uint16_t first = 0, last = 0;  ///< 0 and 0: whichever is free
};
/// "20000-20099" or "20000". Throws bad_input naming `source`, which is where the text comes from.
PortRange parse_port_range(std::string_view text, std::string_view source);

/// Where a process that others know as `host` listens: at its addresses, if they are of this host. A name that stands
/// for the loopback here stands for something else elsewhere, and an address may be another host's that passes
/// connections on: then, and for no host, on all addresses. Port 0. Throws bad_input where `host` cannot be resolved.
std::vector<SocketAddress> addresses_to_listen_at(const std::string& host);
/// Listens on the first free port of the range. Throws system.
Fd listen_at(SocketAddress address, PortRange ports);
/// Begins to connect; what comes of it is seen when the socket becomes writable. Throws system.
Fd begin_connect(const SocketAddress& address);
/// The next connection that waits; nothing, and errno, where there is none or no descriptor for it.
Fd accept_from(int listener);
/// 0, or the error that the socket came to.
int pending_error(int fd);
SocketAddress address_of_this_end(int fd);
SocketAddress address_of_other_end(int fd);
/// True where a socket is connected with itself, which happens to who calls a free port of the range that callers' own
/// ports come from.
bool is_connected_with_itself(int fd);
/// The address that packets to `target` would carry; nothing where there is no route.
std::optional<SocketAddress> address_towards(const SocketAddress& target);

/// Small messages leave at once; a host that is silent for `silence_seconds` is noticed where nothing is on its way.
/// Where something is, ask is_unanswered().
void set_stream_options(int fd, double silence_seconds);
/// True while the other host's kernel owes an answer to something that was sent more than once. A peer that only does
/// not read owes none. (TCP_USER_TIMEOUT takes the two for the same.)
bool is_unanswered(int fd);
/// 0 leaves a size as it is.
void set_buffer_sizes(int fd, int send_bytes, int receive_bytes);

}  // namespace tulle
