// Times at which who awaits a datagram goes on without one. Guarded by the engine's lock.
#pragma once

#include <set>

#include "comm/datagram_queue.hpp"

namespace tulle {

class Alarms {
 public:
  void set(double seconds, DatagramQueue& queue) { alarms_.insert({seconds, &queue}); }
  void cancel(double seconds, DatagramQueue& queue) { alarms_.erase({seconds, &queue}); }

  /// Wakes whose time is over, and asks the transport for the next. REQUIRES: called by the driver.
  void ring(Transport& transport, ReadyQueue& ready) {
    while (!alarms_.empty()) {
      const auto [seconds, queue] = *alarms_.begin();
      if (transport.now() < seconds) return transport.set_timer(seconds);
      alarms_.erase(alarms_.begin());
      queue->wake(ready);
    }
  }

 private:
  struct Alarm {
    double seconds;
    DatagramQueue* queue;
    friend auto operator<=>(const Alarm&, const Alarm&) = default;
  };
  std::set<Alarm, std::less<>, PoolAllocator<Alarm>> alarms_;
};

}  // namespace tulle
