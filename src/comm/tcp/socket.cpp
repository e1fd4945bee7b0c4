#include "comm/tcp/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "tulle/base/error.hpp"

namespace tulle {

std::string describe_errno(std::string_view call, int code) {
  return fmt::format("{}: {}", call, std::generic_category().message(code));
}

void throw_errno(std::string_view call) { throw Error(ErrorKind::system, describe_errno(call, errno)); }

// ---------------------------------------------------------------- addresses

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) {
  std::memcpy(&storage_, address, std::min<std::size_t>(length, sizeof storage_));
}

SocketAddress SocketAddress::any() {
  const Fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return *from_numbers(probe ? "::" : "0.0.0.0", 0);
}

std::optional<SocketAddress> SocketAddress::from_numbers(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  auto* const four = reinterpret_cast<sockaddr_in*>(&address.storage_);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address.storage_);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
  } else {
    return std::nullopt;
  }
  address.set_port(port);
  return address;
}

std::vector<SocketAddress> SocketAddress::resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0) {
    throw Error(ErrorKind::bad_input, fmt::format("the host '{}' cannot be resolved: {}", host, gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    addresses.emplace_back(info->ai_addr, info->ai_addrlen);
    addresses.back().set_port(port);
  }
  return addresses;
}

std::vector<SocketAddress> SocketAddress::resolve(const std::string& host, std::uint16_t port,
                                                  const Deadline& deadline) {
  constexpr std::chrono::milliseconds kBetweenTries(100);
  for (;; std::this_thread::sleep_for(kBetweenTries)) {
    try {
      return resolve(host, port);
    } catch (const Error& error) {
      if (!deadline.has_passed()) continue;
      throw Error(ErrorKind::deadline, fmt::format("{}, and did not appear until the deadline", error.what()));
    }
  }
}

socklen_t SocketAddress::length() const { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }

std::uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

void SocketAddress::set_port(std::uint16_t port) {
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  }
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "?";
  const void* const bits = family() == AF_INET
                               ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr)
                               : &reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  inet_ntop(family(), bits, text, sizeof text);
  return text;
}

std::string SocketAddress::text() const {
  return family() == AF_INET ? fmt::format("{}:{}", host(), port()) : fmt::format("[{}]:{}", host(), port());
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool SocketAddress::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

// ---------------------------------------------------------------- ports

PortRange parse_port_range(std::string_view text, std::string_view source) {
  const auto number = [&](std::string_view digits) {
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size() || port == 0) {
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: '{}' is not a port or a range such as 20000-20099", source, text));
    }
    return port;
  };
  const std::size_t dash = text.find('-');
  const std::uint16_t first = number(text.substr(0, dash));
  const std::uint16_t last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (last < first) throw Error(ErrorKind::bad_input, fmt::format("{}: '{}' ends before it begins", source, text));
  return {first, last};
}

// ---------------------------------------------------------------- sockets

namespace {

void set_option(int fd, int level, int option, int value) {
  // What a kernel does not have is done without: none of the options changes what arrives.
  setsockopt(fd, level, option, &value, sizeof value);
}

Fd new_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("socket");
  return fd;
}

}  // namespace

namespace {

bool is_of_this_host(const SocketAddress& address) {
  const Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd && ::bind(fd.get(), address.get(), address.length()) == 0;
}

}  // namespace

std::vector<SocketAddress> addresses_to_listen_at(const std::string& host) {
  if (host.empty()) return {SocketAddress::any()};
  const bool is_name = host != "localhost" && !SocketAddress::from_numbers(host, 0);
  std::vector<SocketAddress> own;
  for (const SocketAddress& address : SocketAddress::resolve(host, 0)) {
    if (is_name && address.is_loopback()) return {SocketAddress::any()};
    if (is_of_this_host(address)) own.push_back(address);
  }
  return own.empty() ? std::vector<SocketAddress>{SocketAddress::any()} : own;
}

Fd listen_at(SocketAddress address, PortRange ports) {
  for (int port = ports.first; port <= ports.last; ++port) {
    Fd fd = new_socket(address.family());
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    address.set_port(static_cast<std::uint16_t>(port));
    if (::bind(fd.get(), address.get(), address.length()) == 0) {
      if (::listen(fd.get(), SOMAXCONN) == 0) return fd;
    }
    if (errno != EADDRINUSE) throw_errno(fmt::format("listening at {}", address.text()));
  }
  const std::string range =
      ports.first == ports.last ? std::to_string(ports.first) : fmt::format("{} to {}", ports.first, ports.last);
  throw Error(ErrorKind::system, fmt::format("listening at {}: port {} is in use", address.host(), range));
}

Fd begin_connect(const SocketAddress& address) {
  Fd fd = new_socket(address.family());
  if (::connect(fd.get(), address.get(), address.length()) != 0 && errno != EINPROGRESS) {
    throw_errno(fmt::format("connecting to {}", address.text()));
  }
  return fd;
}

Fd accept_from(int listener) { return Fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }

int pending_error(int fd) {
  int code = 0;
  socklen_t length = sizeof code;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0) return errno;
  return code;
}

SocketAddress address_of_this_end(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) throw_errno("getsockname");
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

SocketAddress address_of_other_end(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return *SocketAddress::from_numbers("0.0.0.0", 0);  // it is gone already
  }
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

bool is_connected_with_itself(int fd) { return address_of_this_end(fd).text() == address_of_other_end(fd).text(); }

// Connecting a datagram socket sends nothing: it only asks the routing table.
std::optional<SocketAddress> address_towards(const SocketAddress& target) {
  const Fd fd(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress with_port = target;
  with_port.set_port(9);
  if (!fd || ::connect(fd.get(), with_port.get(), with_port.length()) != 0) return std::nullopt;
  return address_of_this_end(fd.get());
}

void set_stream_options(int fd, double silence_seconds) {
  const int seconds = std::max(1, static_cast<int>(silence_seconds));
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Both counts go back to zero with whatever arrives from the other kernel.
bool is_unanswered(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  return info.tcpi_retransmits > 0 ||
         info.tcpi_probes > 1;  // one probe is always on its way while a peer does not read
}

void set_buffer_sizes(int fd, int send_bytes, int receive_bytes) {
  if (send_bytes > 0) set_option(fd, SOL_SOCKET, SO_SNDBUF, send_bytes);
  if (receive_bytes > 0) set_option(fd, SOL_SOCKET, SO_RCVBUF, receive_bytes);
}

}  // namespace tulle
