// Makes connections: calls peers, answers those who call, and turns away who is no member of the job.
//
// How it works: the caller connects and sends a Hello with the token of the rank that it calls; the other answers with
// a Hello that has the caller's. Tokens are known from the rendezvous alone. Nothing else is sent before the answer, so
// a connection can be dropped without loss until then. Two ranks may call each other at once: the call of the lower
// rank is kept, and the higher one is told *later*. The listening socket is an entrance.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/card.hpp"
#include "comm/tcp/clock.hpp"
#include "comm/tcp/entrance.hpp"
#include "comm/tcp/hello.hpp"
#include "comm/tcp/poller.hpp"

namespace tulle {

class GreeterOwner {
 public:
  /// A connection to `peer`, who knows the token and is known by his. `can_pull`: he can read this process's memory.
  virtual void take_connection(int peer, Fd fd, bool can_pull) = 0;
  virtual bool is_connected(int peer) const = 0;
  /// No address of the peer's leads to it.
  virtual void take_failure(int peer, const std::string& reason) = 0;

 protected:
  ~GreeterOwner() = default;
};

class Greeter {
 public:
  struct Job {
    int rank = 0;
    std::vector<Card> cards = {};
    std::vector<bool> can_pull = {};  ///< whether this process can read each rank's memory
  };
  /// `owner`, `poller` and `options` outlive the greeter. Keys of the poller from kFirstKey on are the greeter's.
  static constexpr Poller::Key kFirstKey = Poller::Key{1} << 32;
  Greeter(Job job, Poller& poller, const TcpOptions& options, GreeterOwner& owner);

  const Job& job() const { return job_; }
  /// Lets others call. The socket listens already.
  void open_door(Fd listener);
  /// Callers are not heard any more.
  void close_door();

  /// Begins to connect to a peer, unless that is under way.
  void call(int peer);
  bool is_busy() const { return !calls_.empty() || (entrance_ && entrance_->is_busy()); }
  /// What happened to one of the greeter's sockets.
  void handle(Poller::Key key);
  /// Gives up on who does not answer. Call it now and then while is_busy().
  void check_times();
  /// Strangers at the door, for the end of a message; see Entrance.
  std::string refusals() const { return entrance_ ? entrance_->refusals() : ""; }

  /// Closes everything, in a forked child.
  void forget() noexcept;

 private:
  // A call before it is a connection: up to a whole Hello has been received.
  struct Talk {
    Fd fd;
    Deadline deadline;
    std::array<std::byte, kHelloBytes> bytes = {};
    std::size_t received = 0;
  };
  struct Call {
    std::vector<SocketAddress> addresses;
    std::size_t next_address = 0;
    std::string failures = {};
    int hang_ups = 0;
    bool is_connected = false;
    Talk talk = {Fd(), Deadline(0)};
  };
  enum class Heard { part, whole, nothing };

  Hello hello_for(int peer, Hello::Kind kind) const;
  static Heard hear(Talk& talk);
  static bool say(int fd, const Hello& hello);
  std::string why_not(const Hello& hello, Hello::Kind least, Hello::Kind most, int from) const;

  void try_next_address(int peer);
  void give_up_address(int peer, const std::string& reason);
  void call_again(int peer);
  void continue_call(int peer);
  void take_answer(int peer);

  void open_for_callers();
  void answer(Entrance::Arrival arrival);
  void hand_over(int peer, Fd fd, bool can_pull);

  Job job_;
  Poller& poller_;
  const TcpOptions& options_;
  GreeterOwner& owner_;
  std::optional<Entrance> entrance_;
  std::map<int, Call> calls_;
};

}  // namespace tulle
