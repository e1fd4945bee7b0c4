// Times of pieces of work, on the processor's clock.
#pragma once

#include <chrono>

namespace tulle {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Calls `work` and adds the time that it takes.
template <class Work>
auto timed(double& seconds, Work work) {
  struct Timing {
    double& seconds;
    double started = now_seconds();
    ~Timing() { seconds += now_seconds() - started; }
  } const timing{seconds};
  return work();
}

}  // namespace tulle
