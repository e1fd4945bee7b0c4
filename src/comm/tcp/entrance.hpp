// A place where processes connect from outside, and the one policy for those who have not said who they are yet.
//
// How it works: a connection is a *stranger* until it has said its first words, whole. It has kSecondsPerStranger for
// them, counted from when it was accepted, however slowly they come. There is a bound on the number of strangers; when
// one more comes, the oldest goes. Where the process has no file descriptor left the oldest goes too, and where there
// is none the entrance rests for a moment. Who goes is counted, so that an error can tell of it.
//
// The rendezvous, the door of a job and the listening socket of each rank are entrances.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/clock.hpp"
#include "comm/tcp/fd.hpp"

namespace tulle {

/// An eighth of the descriptors that this process may have (`ulimit -n`), at least 4, at most 256.
std::size_t most_strangers();

class Entrance {
 public:
  static constexpr double kSecondsPerStranger = 5;

  /// What the beginning of a stranger's words is.
  struct Verdict {
    enum class Kind { part, whole, wrong } kind = Kind::part;
    std::string reason = {};  ///< of `wrong`
  };
  using Judge = std::function<Verdict(std::string_view said)>;
  using OnRefusal = std::function<void(const std::string& address, const std::string& reason)>;
  struct Arrival {
    Fd fd;
    std::string address;  ///< of the other side
    std::string said;
  };

  /// The sockets listen already. `judge` bounds the length of what is said. Throws system.
  Entrance(std::vector<Fd> listeners, Judge judge, OnRefusal on_refusal = {},
           double seconds_per_stranger = kSecondsPerStranger);

  /// Becomes readable when there is something to look at, for poll() and epoll.
  int fd() const { return epoll_.get(); }
  /// Lets in who connected, hears what they say, drops who is too late. Gives those who have said their words. Never
  /// waits. Call it also now and then while is_busy().
  std::vector<Arrival> look();
  /// True while there are strangers, or the entrance rests.
  bool is_busy() const { return !strangers_.empty() || rests_until_.has_value(); }
  std::uint16_t port() const;

  /// For who has said its words and is refused because of them.
  void count_refusal(const std::string& address, const std::string& reason);
  /// "; 37 connections were refused, the last one of 127.0.0.1:4711 because it says nothing", or empty.
  std::string refusals() const;

  /// Closes everything, in a forked child.
  void forget() noexcept;

 private:
  using Number = std::uint64_t;
  struct Stranger {
    Fd fd;
    Deadline deadline;
    std::string address;
    std::string said = {};
  };

  void drop_late();
  void end_rest();
  void hear(Number number, std::vector<Arrival>& arrivals);
  void let_in(int listener, std::vector<Arrival>& arrivals);
  bool make_room(std::vector<Arrival>& arrivals, const std::string& reason);
  Stranger drop(Number number);
  void refuse(Number number, const std::string& reason);
  void rest();
  void watch_listeners(std::uint32_t events);

  Judge judge_;
  OnRefusal on_refusal_;
  double seconds_per_stranger_;
  std::size_t most_strangers_;
  Fd epoll_;
  std::vector<Fd> listeners_;
  std::map<Number, Stranger> strangers_;  ///< the oldest first
  Number next_number_;
  std::optional<Deadline> rests_until_;
  std::uint64_t refused_ = 0;
  bool lacked_descriptors_ = false;
  std::string last_refusal_;
};

}  // namespace tulle
