#include "tulle/comm/task.hpp"

#include <cassert>

namespace tulle {
namespace {
thread_local ReadyQueue* running_queue = nullptr;
}

void ReadyQueue::run() {
  ReadyQueue* const outer = std::exchange(running_queue, this);
  while (!ready_.empty()) {
    const std::coroutine_handle<> coroutine = ready_.front();
    ready_.pop_front();
    coroutine.resume();
  }
  running_queue = outer;
}

ReadyQueue& ReadyQueue::current() {
  assert(running_queue != nullptr && "awaited outside an engine");
  return *running_queue;
}

}  // namespace tulle
