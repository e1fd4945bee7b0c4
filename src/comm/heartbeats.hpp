// One rank's heartbeats: whom to send a beat, and who has been silent for too long. A state machine without I/O.
//
// How it works. What is sent and what arrives only sets a mark. Four times an interval the engine *looks*: marks become
// times, peers that were sent nothing for an interval are due a beat, and peers of which nothing was heard for the
// limit are silent. So a message costs a mark and no look at the clock. Times are late by a quarter of an interval at
// most.
//
// Threads: the driver's.
#pragma once

#include <cstdint>
#include <limits>

#include "tulle/base/buffer.hpp"
#include "tulle/comm/heartbeat.hpp"
#include "tulle/comm/transport.hpp"

namespace tulle {

class Heartbeats {
 public:
  /// REQUIRES: complete settings, or none: then this rank listens, because peers whose beats come before its own begin
  /// may send messages, and no beat, from then on.
  Heartbeats(const Heartbeat& settings, int rank, int size);

  const Heartbeat& settings() const { return settings_; }
  /// False while this rank only listens.
  bool is_on() const { return settings_.is_on(); }
  /// Judges those whose beats `listener` has heard, and forgets those that it knows to be gone.
  void take_over(const Heartbeats& listener);

  void note_sent(int peer) { at(peer).was_sent = true; }
  void note_heard(int peer) { at(peer).was_heard = true; }
  /// A beat came: from now on its silence counts.
  void judge(int peer) { at(peer).is_judged = true; }
  /// It is lost or has left: it is sent nothing and not judged any more.
  void forget(int peer) { at(peer).is_forgotten = true; }
  bool is_forgotten(int peer) const { return peers_[static_cast<std::size_t>(peer)].is_forgotten; }

  double next_look() const { return next_look_; }
  struct Silence {
    int peer;
    double seconds;
  };
  /// Turns marks into times and gives who is silent. `transport` knows whom it reaches and whose bytes have come.
  PoolVector<Silence> look(double now, const Transport& transport);
  /// Who is due a beat now, and counts as sent one. Changes nothing else, so that a rank may ask while it computes.
  PoolVector<int> take_due(double now, const Transport& transport);

 private:
  struct Peer {
    bool was_sent = false, was_heard = false;  ///< since the last look
    bool is_judged = false;
    bool is_forgotten = false;
    bool has_had_a_beat = false;  ///< the first is sent also where messages flow
    double sent_seconds = 0, heard_seconds = 0;
    std::uint64_t bytes = 0;  ///< that have come, as the transport counts
  };
  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  void note_times(Peer& peer, std::uint64_t bytes, double now, double away) const;

  Heartbeat settings_;
  PoolVector<Peer> peers_;
  double last_look_ = -std::numeric_limits<double>::infinity();
  double next_look_ = -std::numeric_limits<double>::infinity();
};

}  // namespace tulle
