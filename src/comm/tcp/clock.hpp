// Seconds that only go forward, and a point of them after which nobody waits any longer.
#pragma once

#include <algorithm>
#include <chrono>

namespace tulle {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Deadline {
 public:
  explicit Deadline(double seconds) : end_(steady_seconds() + seconds) {}
  bool has_passed() const { return steady_seconds() >= end_; }
  /// For poll() and epoll_wait(): what is left, at most `most`, at least 1.
  int milliseconds_left(int most) const {
    return std::clamp(static_cast<int>(std::min((end_ - steady_seconds()) * 1000, double(most))), 1, most);
  }

 private:
  double end_;
};

}  // namespace tulle
