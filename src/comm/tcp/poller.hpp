// What a rank waits for: its sockets, by epoll, and other threads that want to wake it.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "comm/tcp/fd.hpp"

namespace tulle {

/// Level-triggered: what sleep() saw is still there for look().
class Poller {
 public:
  /// Whose socket it is: the meaning is the caller's. kWakeKey is taken.
  using Key = std::uint64_t;
  static constexpr Key kWakeKey = ~Key{0};

  /// Throws system.
  Poller();

  void add(int fd, Key key, std::uint32_t events);
  void change(int fd, Key key, std::uint32_t events);
  /// Nothing happens where it is not in the set.
  void remove(int fd);

  /// What is ready now, or becomes so within `milliseconds`.
  std::span<const epoll_event> look(std::span<epoll_event> events, int milliseconds) const;
  /// Returns when something is ready, when wake() is called, or after `milliseconds`. From one thread at a time.
  void sleep(int milliseconds);
  /// Ends a sleep(), or lets the next one return at once. From any thread; cheap where nobody sleeps.
  void wake();

  /// Closes what it has, without a word to the kernel about the set, which a parent process may share.
  void forget() noexcept;

 private:
  Fd epoll_;
  Fd event_;
  std::atomic<bool> sleeps_ = false;
  std::atomic<bool> woken_ = false;
};

}  // namespace tulle
