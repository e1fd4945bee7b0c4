// Messages that are lost, cut short or changed on the way.
#pragma once

#include <cstdint>

#include "tulle/base/philox.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/sim.hpp"

namespace tulle {

class SimFaultInjector {
 public:
  /// REQUIRES: `random` outlives it.
  SimFaultInjector(const SimFaults& faults, Philox& random) : faults_(faults), random_(random) {}

  /// Does to `message` what the seed decides. True where it is lost.
  bool strike(Message& message);
  double draw_delay_seconds() {
    return faults_.max_delay_seconds > 0 ? faults_.max_delay_seconds * random_.uniform() : 0;
  }
  std::uint64_t count() const { return count_; }

  /// The death of a rank that has sent so many messages and is about to send another; null where it lives on.
  const SimDeath* death_of(int rank, std::uint64_t messages) const;
  /// True where a partition lies between the two, which counts as a fault.
  bool is_cut(int source, int target, double seconds);

 private:
  bool draw(double probability) { return probability > 0 && random_.uniform() < probability; }
  Buffer& some_buffer(Message& message);
  void truncate(Message& message);
  void corrupt(Message& message);

  SimFaults faults_;
  Philox& random_;
  std::uint64_t count_ = 0;
};

}  // namespace tulle
