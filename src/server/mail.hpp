// Letters between servers and workers, in the order in which each sender wrote them.
//
// Datagrams to one peer may overtake each other. Letters are numbered, and one that comes early waits for those before
// it, so that a leave never overtakes a push and an update never the one before.
//
// A worker that is restarted counts from 0 again, while letters of the one before may still be under way. Each has a
// *life*, a number that all letters from it and to it carry; a join begins another, and what is of an old one is thrown
// away.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "server/letters.hpp"
#include "tulle/comm/datagram.hpp"

namespace tulle::server {

/// The life of a worker that begins at this time of the transport's clock; never 0.
std::uint16_t life_at(double now);

class Mail {
 public:
  /// `life` of a worker; 0: of a server, which writes to the life that its peer has.
  Mail(const Communicator& communicator, std::uint32_t port, std::uint16_t life);

  /// Sends and goes on. Gives the bytes that travel. The sequence is filled in.
  std::uint64_t send(int to, LetterHead head, const Body& body = {});
  /// What has arrived, without looking at the network.
  std::optional<Letter> try_receive();
  /// The next letter or failure; none after `seconds`.
  Task<std::optional<Letter>> receive(double seconds);

  /// For who waits at the port itself, from another thread: what came there, and the letters that are in order then.
  DatagramPort& port() { return port_; }
  void put(Datagram datagram) { sort(std::move(datagram)); }
  std::optional<Letter> take();

  double now() const { return communicator_.engine()->transport().now(); }

 private:
  struct Peer {
    std::uint16_t life = 0;
    std::uint64_t sent = 0, received = 0;
    std::map<std::uint64_t, Letter> early;
  };

  void sort(Datagram datagram);
  void sort(Letter letter);
  bool is_of_this_life(const Letter& letter);

  Communicator communicator_;
  DatagramPort port_;
  std::uint16_t life_;
  std::vector<Peer> peers_;
  std::deque<Letter> in_order_;
};

}  // namespace tulle::server
