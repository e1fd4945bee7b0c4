#include "cli/common/watchdog.hpp"

namespace tulle::cli {

Watchdog::Watchdog(double seconds, std::function<void(const std::string& what)> late)
    : limit_(seconds), late_(std::move(late)), thread_([this] { look(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::expect(std::string what) {
  const std::lock_guard lock(mutex_);
  expected_ = std::move(what);
  since_ = Clock::now();
  changed_.notify_one();
}

void Watchdog::rest() {
  const std::lock_guard lock(mutex_);
  expected_.reset();
}

void Watchdog::look() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    if (!expected_) {
      changed_.wait(lock);
    } else if (Clock::now() - since_ < limit_) {
      changed_.wait_for(lock, limit_ - (Clock::now() - since_));
    } else {
      const std::string what = *expected_;
      expected_.reset();
      lock.unlock();
      late_(what);
      lock.lock();
    }
  }
}

}  // namespace tulle::cli
