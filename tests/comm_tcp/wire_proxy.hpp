// A proxy between the ranks of a job on TCP, in the process of the test: it flips a bit, cuts, stalls or trickles.
//
// Use: a WireProxy for the job, and for each rank a ProxiedRendezvous around its own, given to connect(). Cards then
// offer the proxy's addresses, and name a host each, so that nothing is read from memory. Each connection is known by
// the hello of who calls.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/tcp/card.hpp"
#include "comm/tcp/hello.hpp"
#include "comm/tcp/socket.hpp"
#include "tulle/comm/rendezvous.hpp"

namespace tulle::testing {

/// What happens to the bytes that go from one rank to another, counted from the first of the connection, the hello's.
struct WireFault {
  enum class Kind {
    flip,     ///< bit `bit` of byte `at`
    cut,      ///< both directions of the connection end before byte `at`
    stall,    ///< nothing goes on from byte `at` on
    trickle,  ///< from byte `at` on kTrickled bytes go on by 1 to 7 at a time
  };
  Kind kind = Kind::flip;
  int from = 0, to = 1;
  std::uint64_t at = 0;
  int bit = 0;

  static constexpr std::uint64_t kTrickled = 20'000;
};

class WireProxy {
 public:
  explicit WireProxy(int ranks, std::vector<WireFault> faults = {}) : faults_(std::move(faults)) {
    for (int rank = 0; rank < ranks; ++rank) {
      doors_.push_back({listen_at(*SocketAddress::from_numbers("127.0.0.1", 0), {}), {}});
    }
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) work();
    });
  }

  /// Where the others are to call `rank`, which listens at `real`.
  SocketAddress stand_in_for(int rank, const SocketAddress& real) {
    const std::lock_guard lock(mutex_);
    Door& door = doors_[static_cast<std::size_t>(rank)];
    door.real = real;
    return address_of_this_end(door.listener.get());
  }
  /// How many of the faults have happened.
  int happened() const { return happened_; }

 private:
  struct Door {
    Fd listener;
    std::optional<SocketAddress> real;
  };
  // Bytes on their way from one socket to the other.
  struct Flow {
    int from = -1, to = -1;  ///< ranks; -1: not known yet
    std::uint64_t passed = 0;
    std::string waiting = {};
    bool has_ended = false, is_shut = false;
  };
  struct Connection {
    Fd ends[2];     ///< of the caller, and of the one who is called
    Flow flows[2];  ///< away from each of them
    bool is_cut = false;
  };

  void work() {
    std::vector<pollfd> sockets;
    for (const Door& door : doors_) sockets.push_back({door.listener.get(), POLLIN, 0});
    for (const auto& connection : connections_) {
      for (int end = 0; end < 2; ++end)
        sockets.push_back({connection->ends[end].get(), events_of(*connection, end), 0});
    }
    const std::size_t known = connections_.size();
    ::poll(sockets.data(), sockets.size(), 5);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < known; ++i) serve(*connections_[i], &sockets[doors_.size() + 2 * i]);
    std::erase_if(connections_, [](const auto& each) { return each->is_cut; });
    for (std::size_t rank = 0; rank < doors_.size(); ++rank) {
      if ((sockets[rank].revents & POLLIN) != 0) let_in(static_cast<int>(rank));
    }
  }

  static short events_of(const Connection& connection, int end) {
    constexpr std::size_t kMostWaiting = std::size_t{1} << 18;
    const Flow& out = connection.flows[end];
    const bool reads = !out.has_ended && out.waiting.size() < kMostWaiting;
    const bool writes = !connection.flows[1 - end].waiting.empty();
    return static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
  }

  void let_in(int rank) {
    Fd caller = accept_from(doors_[static_cast<std::size_t>(rank)].listener.get());
    const auto& real = doors_[static_cast<std::size_t>(rank)].real;
    if (!caller || !real) return;
    auto connection = std::make_unique<Connection>();
    connection->ends[0] = std::move(caller);
    connection->ends[1] = begin_connect(*real);
    for (const Fd& end : connection->ends) set_stream_options(end.get(), 10);
    connection->flows[0].to = connection->flows[1].from = rank;
    connections_.push_back(std::move(connection));
  }

  void serve(Connection& connection, const pollfd* sockets) {
    for (int end = 0; end < 2; ++end) {
      if ((sockets[end].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read(connection, end);
    }
    for (int end = 0; end < 2 && !connection.is_cut; ++end) write(connection, end);
    connection.is_cut |= connection.flows[0].is_shut && connection.flows[1].is_shut;
  }

  void read(Connection& connection, int end) {
    Flow& flow = connection.flows[end];
    if (flow.has_ended) return;
    char bytes[1 << 14];
    const ssize_t got = ::recv(connection.ends[end].get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      flow.has_ended = true;
      return;
    }
    flow.waiting.append(bytes, static_cast<std::size_t>(got));
    if (end == 0 && flow.from < 0 && flow.waiting.size() >= kHelloBytes) learn_caller(connection);
  }

  // Before anything of the caller's is passed on.
  static void learn_caller(Connection& connection) {
    const auto bytes = std::as_bytes(std::span(connection.flows[0].waiting)).first<kHelloBytes>();
    const auto hello = decode_hello(bytes);
    const int from = std::holds_alternative<Hello>(hello) ? std::get<Hello>(hello).from : connection.flows[0].to;
    connection.flows[0].from = connection.flows[1].to = from;
  }

  // Towards `ends[end]`, of what comes from the other one.
  void write(Connection& connection, int end) {
    Flow& flow = connection.flows[1 - end];
    const int fd = connection.ends[end].get();
    if (flow.from < 0 || flow.to < 0) {
      if (flow.has_ended) connection.is_cut = true;
      return;
    }
    while (!flow.waiting.empty()) {
      const std::size_t bytes = allowed(connection, flow);
      if (bytes == 0) return;
      const ssize_t sent = ::send(fd, flow.waiting.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN || errno == EINPROGRESS)) return;
      if (sent < 0) {  // nobody reads this way any more
        flow.has_ended = true;
        flow.waiting.clear();
        break;
      }
      flow.passed += static_cast<std::uint64_t>(sent);
      flow.waiting.erase(0, static_cast<std::size_t>(sent));
    }
    if (flow.has_ended && !std::exchange(flow.is_shut, true)) ::shutdown(fd, SHUT_WR);
  }

  // How many of the flow's bytes may go on now. A fault that lies among them happens.
  std::size_t allowed(Connection& connection, Flow& flow) {
    std::uint64_t bytes = flow.waiting.size();
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      const WireFault& fault = faults_[i];
      if (fault.from != flow.from || fault.to != flow.to || fault.at >= flow.passed + bytes) continue;
      const bool is_reached = fault.at <= flow.passed;
      switch (fault.kind) {
        case WireFault::Kind::flip:
          if (fault.at < flow.passed || has_happened(i)) break;
          flow.waiting[static_cast<std::size_t>(fault.at - flow.passed)] ^= static_cast<char>(1 << fault.bit);
          count(i);
          break;
        case WireFault::Kind::cut:
          if (is_reached) {
            count(i);
            connection.is_cut = true;
          }
          bytes = is_reached ? 0 : fault.at - flow.passed;
          break;
        case WireFault::Kind::stall:
          if (is_reached) count(i);
          bytes = is_reached ? 0 : fault.at - flow.passed;
          break;
        case WireFault::Kind::trickle:
          if (flow.passed >= fault.at + WireFault::kTrickled) break;
          if (is_reached) count(i);
          bytes = is_reached ? std::min(bytes, 1 + flow.passed % 7) : fault.at - flow.passed;
          break;
      }
      if (bytes == 0) return 0;
    }
    return static_cast<std::size_t>(bytes);
  }

  bool has_happened(std::size_t fault) const { return (seen_ >> fault & 1) != 0; }
  void count(std::size_t fault) {
    if (has_happened(fault)) return;
    seen_ |= std::uint64_t{1} << fault;
    happened_ += 1;
  }

  const std::vector<WireFault> faults_;  ///< at most 64
  std::mutex mutex_;
  std::deque<Door> doors_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::uint64_t seen_ = 0;
  std::atomic<int> happened_ = 0;
  std::jthread thread_;  // ends first
};

/// Gives everybody the proxy's addresses. `inner` and `proxy` outlive it.
class ProxiedRendezvous final : public Rendezvous {
 public:
  ProxiedRendezvous(Rendezvous& inner, WireProxy& proxy) : inner_(inner), proxy_(proxy) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string meeting_host() const override { return "127.0.0.1"; }
  std::vector<std::string> allgather(const std::string& mine) override {
    std::vector<std::string> all = inner_.allgather(mine);
    for (int each = 0; each < size(); ++each) {
      std::string& bytes = all[static_cast<std::size_t>(each)];
      Card card = decode_card(bytes, each);
      card.addresses = {proxy_.stand_in_for(each, card.addresses.front())};
      card.host = "host " + std::to_string(each);
      bytes = encode_card(card);
    }
    return all;
  }

 private:
  Rendezvous& inner_;
  WireProxy& proxy_;
};

}  // namespace tulle::testing
