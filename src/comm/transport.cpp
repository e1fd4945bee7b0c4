#include "tulle/comm/transport.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

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
  const std::chrono::microseconds longest(std::min(misses - kYields + 1, kLongestSleepMicroseconds));
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, longest, [this] { return is_woken_; });
  is_woken_ = false;
}

void Transport::wake() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  woken_.notify_one();
}

}  // namespace tulle
