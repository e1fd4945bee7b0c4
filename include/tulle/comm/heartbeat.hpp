// Heartbeats: how a rank that was stopped or is wedged becomes known long before a deadline.
//
// A rank that has them on sends a *beat* to each peer that it has sent nothing to for an interval. A peer that has sent
// a beat and of which then nothing arrives for the limit, no message and no byte of one, is lost as if its connection
// had closed: operations fail with peer_failed, and survivors may shrink.
//
// Who has never sent a beat is not judged, so that ranks may begin at different times, and one that has heartbeats off
// is never taken for dead. Time in which a rank itself did not look, because it was stopped or computed, counts for
// nobody's silence.
#pragma once

#include <string>

#pragma GCC visibility push(default)
namespace tulle {

/// REQUIRES: equal on all ranks. Beats carry them, and ranks that differ get mismatch.
struct Heartbeat {
  /// 0: off, which costs nothing. Else at least a millisecond; below 0.1 s ranks wake up for nothing else.
  double interval_seconds = 0;
  /// A peer that is silent for so long is lost. At least two intervals; 0: ten. Too small: ranks that live are lost,
  /// because the engine makes a large sum in one piece, or because a machine has no time for a process.
  double limit_seconds = 0;

  bool is_on() const { return interval_seconds > 0; }
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// With the limit in the place of a 0. Throws bad_input for what cannot be.
Heartbeat complete_heartbeat(const Heartbeat& heartbeat);
/// "INTERVAL" or "INTERVAL/LIMIT", in seconds: "0.5/10". Throws bad_input, which names `source`.
Heartbeat parse_heartbeat(const std::string& text, const std::string& source);

/// Of the environment variable that says it where no option does.
inline constexpr const char* kHeartbeatVariable = "TULLE_HEARTBEAT";

}  // namespace tulle
#pragma GCC visibility pop
