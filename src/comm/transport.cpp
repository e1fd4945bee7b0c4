#include "tulle/comm/transport.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tulle {

// Spin while an answer is likely to be on its way; then give up the core, because on an oversubscribed machine the
// peer that owes the answer needs it; then sleep, a little longer each time, so that a stopped peer costs no energy.
void Transport::idle(int misses) {
  constexpr int kSpins = 100, kYields = 2000;
  constexpr int kLongestSleepMicroseconds = 200;
  if (misses < kSpins) return;
  if (misses < kYields) {
    sched_yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(misses - kYields + 1, kLongestSleepMicroseconds)));
}

}  // namespace tulle
