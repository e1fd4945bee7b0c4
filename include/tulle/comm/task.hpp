// Coroutines that return a value: what every collective is written as.
//
// A task starts when it is awaited or started. Nothing is ever resumed from inside another coroutine: whoever is ready
// goes to the *ready queue* of the engine that runs, and the engine's loop resumes one after the other (a trampoline).
// Symmetric transfer would be shorter, but GCC 12 turns it into a call below -O2, and a million ready awaits would
// overflow the stack. Frames come from the buffer pool.
//
// Threads: a task belongs to the thread that resumes its queue; done() alone may be asked from any thread.
#pragma once

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "tulle/base/buffer.hpp"

#pragma GCC visibility push(default)
namespace tulle {

class ReadyQueue;

/// A coroutine's place in a ready queue. It is part of the coroutine's frame, so that queueing asks for no memory and
/// cannot fail; a frame that is destroyed leaves its queue.
class ReadyLink {
 public:
  ReadyLink() = default;
  ReadyLink(const ReadyLink&) = delete;
  ReadyLink& operator=(const ReadyLink&) = delete;
  ~ReadyLink() { leave(); }

  bool is_queued() const { return next_ != this; }

 private:
  friend class ReadyQueue;
  void leave() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = this;
  }

  ReadyLink* next_ = this;
  ReadyLink* previous_ = this;
  std::coroutine_handle<> coroutine_;
};

/// Who is told that a coroutine which nobody awaits has ended. Called once, from the thread that ran it.
struct Completion {
  void (*call)(void* argument) noexcept = nullptr;
  void* argument = nullptr;
};

namespace detail {
struct PromiseBase;
}

/// Coroutines that can go on, in the order in which they became ready.
class ReadyQueue {
 public:
  /// REQUIRES: the coroutine is suspended and in no queue.
  void push(detail::PromiseBase& promise);
  bool empty() const { return !head_.is_queued(); }
  /// Resumes until nothing is ready. While it runs, it is current() for this thread.
  void run();

  /// The queue that is running on this thread. REQUIRES: called from a coroutine that a queue resumed.
  static ReadyQueue& current();

 private:
  ReadyLink head_;
};

namespace detail {

struct PromiseBase {
  ReadyLink link;
  std::coroutine_handle<> self;
  PromiseBase* continuation = nullptr;
  Completion completion;
  std::exception_ptr error;
  std::atomic<bool> done = false;

  static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* memory) noexcept { pool_free(memory); }

  struct TellWhoWaits {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> finished) const noexcept {
      PromiseBase& promise = finished.promise();
      PromiseBase* const next = promise.continuation;
      const Completion end = promise.completion;
      promise.done.store(true, std::memory_order_release);  // whoever sees it may destroy the frame
      if (next != nullptr) ReadyQueue::current().push(*next);
      if (end.call != nullptr) end.call(end.argument);
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  TellWhoWaits final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  void return_value(T result) { value.emplace(std::move(result)); }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  void return_void() const noexcept {}
  void take() const {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace detail

/// A coroutine that gives a T, or throws. Owns its frame: dropping a task that is suspended ends it there.
template <class T = void>
class [[nodiscard]] Task {
 public:
  struct promise_type : detail::Promise<T> {
    Task get_return_object() {
      this->self = Handle::from_promise(*this);
      return Task(Handle::from_promise(*this));
    }
  };

  Task() = default;
  Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    Task dropped(std::exchange(coroutine_, std::exchange(other.coroutine_, nullptr)));
    return *this;
  }
  ~Task() {
    if (coroutine_) coroutine_.destroy();
  }

  /// Puts the task on `queue` without anyone awaiting it; `completion` is called when it has ended.
  /// REQUIRES: not started.
  void start(ReadyQueue& queue, Completion completion = {}) {
    coroutine_.promise().completion = completion;
    queue.push(coroutine_.promise());
  }
  bool done() const { return coroutine_ && coroutine_.promise().done.load(std::memory_order_acquire); }
  /// The result, or the exception. REQUIRES: done().
  T take() { return coroutine_.promise().take(); }

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) {
    coroutine_.promise().continuation = &caller.promise();
    ReadyQueue::current().push(coroutine_.promise());
  }
  T await_resume() { return take(); }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Task(Handle coroutine) : coroutine_(coroutine) {}

  Handle coroutine_;
};

}  // namespace tulle
#pragma GCC visibility pop
