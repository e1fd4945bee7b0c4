// What is still to come in a simulation, in order of time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "tulle/base/buffer.hpp"

namespace tulle {

struct SimEvent {
  double time = 0;
  std::uint64_t tie = 0;   ///< decides between events of the same time
  std::uint32_t what = 0;  ///< the caller's
  std::uint32_t lane = 0;

  bool operator>(const SimEvent& other) const { return std::pair(time, tie) > std::pair(other.time, other.tie); }
};

/// A heap of the first event of each *lane* alone: a port passes one message after the other, so what comes out of it
/// is in order already, and a heap of a million events would not fit the cache.
class SimEvents {
 public:
  static constexpr std::uint32_t kNoLane = std::numeric_limits<std::uint32_t>::max();

  explicit SimEvents(std::size_t lanes) : lanes_(lanes) {}

  bool empty() const { return heap_.empty(); }

  void push(SimEvent event) {
    if (event.lane == kNoLane) return push_heap(event);
    Lane& lane = lanes_[event.lane];
    if (event.time < lane.last_time) {  // overtakes those that wait
      event.lane = kNoLane;
      return push_heap(event);
    }
    lane.last_time = event.time;
    if (lane.has_head) {
      lane.waiting.push_back(event);
    } else {
      raise(lane, event);
    }
  }

  /// REQUIRES: not empty.
  const SimEvent& front() const { return heap_.front(); }
  /// REQUIRES: not empty.
  SimEvent pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const SimEvent event = heap_.back();
    heap_.pop_back();
    if (event.lane != kNoLane) advance(lanes_[event.lane]);
    return event;
  }

 private:
  struct Lane {
    bool has_head = false;
    double last_time = 0;
    PoolDeque<SimEvent> waiting;
  };

  void advance(Lane& lane) {
    lane.has_head = false;
    if (lane.waiting.empty()) return;
    const SimEvent next = lane.waiting.front();
    lane.waiting.pop_front();
    raise(lane, next);
  }

  void raise(Lane& lane, const SimEvent& event) {
    lane.has_head = true;
    push_heap(event);
  }

  void push_heap(const SimEvent& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::vector<Lane> lanes_;
  PoolVector<SimEvent> heap_;
};

}  // namespace tulle
