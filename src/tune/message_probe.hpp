// Times messages between pairs of ranks over a ladder of sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tulle/tune/line_fit.hpp"
#include "tune/lockstep.hpp"
#include "tune/peers.hpp"

namespace tulle {

inline constexpr std::uint64_t kSmallestMessageBytes = 64;

/// Messages that ranks send at once.
struct MessagePhase {
  std::string prefix;     ///< of the names of the constants that it measures
  PeerTable peers;        ///< of every rank
  bool is_alone = false;  ///< one pair plays ping-pong, while the others look on
};

/// Those that ranks on these nodes can make.
std::vector<MessagePhase> message_phases(std::span<const int> nodes);

class MessageProbe {
 public:
  MessageProbe(Lockstep& lockstep, std::uint64_t largest_bytes);

  /// Climbs the ladder once: α and β as this rank sees them, or none where it looks on.
  Task<std::optional<LineFit>> climb(const MessagePhase& phase);

 private:
  Task<double> shift_seconds(Peers peers, std::uint64_t bytes, Step first, int count);
  Task<double> ping_pong_seconds(int partner, std::uint64_t bytes, Step first, int count);
  void send(int to, Step step, const Buffer& array);

  Lockstep& lockstep_;
  std::vector<std::uint64_t> sizes_;
  Buffer head_;
};

}  // namespace tulle
