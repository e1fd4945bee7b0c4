// Ends a process that waits for ever inside of calls which know no deadline: MPI_Init, MPI_Finalize.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tulle::cli {

/// While something is expected, a thread of its own looks at the clock.
class Watchdog {
 public:
  /// `late` is called, on the watchdog's thread, with what was expected and has not happened within `seconds`.
  Watchdog(double seconds, std::function<void(const std::string& what)> late);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts the clock.
  void expect(std::string what);
  /// It has happened.
  void rest();

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  std::chrono::duration<double> limit_;
  std::function<void(const std::string&)> late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> expected_;
  Clock::time_point since_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace tulle::cli
