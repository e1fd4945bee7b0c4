// What has arrived at a datagram port. Guarded by the engine's lock.
#pragma once

#include <atomic>
#include <utility>

#include "tulle/comm/datagram.hpp"

namespace tulle {

class DatagramQueue {
 public:
  /// Wakes who awaits the next one. REQUIRES: called by the driver, or nobody awaits.
  void push(Datagram datagram, ReadyQueue& ready) {
    arrived_.push_back(std::move(datagram));
    count_.fetch_add(1, std::memory_order_release);
    wake(ready);
  }
  /// Wakes it also where nothing has arrived, because its time is over. REQUIRES: as push().
  void wake(ReadyQueue& ready) {
    if (waiter_ != nullptr) ready.push(*std::exchange(waiter_, nullptr));
  }

  std::optional<Datagram> pop() {
    if (arrived_.empty()) return std::nullopt;
    std::optional<Datagram> first = std::move(arrived_.front());
    arrived_.pop_front();
    count_.fetch_sub(1, std::memory_order_release);
    return first;
  }

  /// May be asked without the lock.
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

  void wake_with(detail::PromiseBase& waiter) { waiter_ = &waiter; }
  void forget(const detail::PromiseBase& waiter) {
    if (waiter_ == &waiter) waiter_ = nullptr;
  }

 private:
  PoolDeque<Datagram> arrived_;
  std::atomic<std::size_t> count_ = 0;
  detail::PromiseBase* waiter_ = nullptr;
};

}  // namespace tulle
