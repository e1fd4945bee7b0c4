#include "tulle/comm/task.hpp"

#include <cassert>

namespace tulle {
namespace {
thread_local ReadyQueue* running_queue = nullptr;
}

void ReadyQueue::push(detail::PromiseBase& promise) {
  ReadyLink& link = promise.link;
  assert(!link.is_queued() && "a coroutine is ready twice");
  link.coroutine_ = promise.self;
  link.next_ = &head_;
  link.previous_ = head_.previous_;
  head_.previous_->next_ = &link;
  head_.previous_ = &link;
}

void ReadyQueue::run() {
  ReadyQueue* const outer = std::exchange(running_queue, this);
  while (!empty()) {
    ReadyLink& first = *head_.next_;
    first.leave();
    first.coroutine_.resume();
  }
  running_queue = outer;
}

ReadyQueue& ReadyQueue::current() {
  assert(running_queue != nullptr && "awaited outside an engine");
  return *running_queue;
}

}  // namespace tulle
