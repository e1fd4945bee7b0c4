// Coroutines that return a value: what every collective is written as.
//
// A task starts when it is awaited or spawned. Nothing is ever resumed from inside another coroutine: whoever is ready
// goes to the *ready queue* of the engine that runs, and the engine's loop resumes one after the other (a trampoline).
// Symmetric transfer would be shorter, but GCC 12 turns it into a call below -O2, and a million ready awaits would
// overflow the stack. Frames come from the buffer pool.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "tulle/base/buffer.hpp"

namespace tulle {

/// Coroutines that can go on, in the order in which they became ready.
class ReadyQueue {
 public:
  void push(std::coroutine_handle<> coroutine) { ready_.push_back(coroutine); }
  bool empty() const { return ready_.empty(); }
  /// Resumes until nothing is ready. While it runs, it is current() for this thread.
  void run();

  /// The queue that is running on this thread. REQUIRES: called from a coroutine that a queue resumed.
  static ReadyQueue& current();

 private:
  PoolDeque<std::coroutine_handle<>> ready_;
};

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::exception_ptr error;

  static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* memory) noexcept { pool_free(memory); }

  struct ResumeContinuation {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> finished) const noexcept {
      if (finished.promise().continuation) ReadyQueue::current().push(finished.promise().continuation);
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  ResumeContinuation final_suspend() const noexcept { return {}; }
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

/// A coroutine that gives a T, or throws. Owns its frame.
template <class T = void>
class [[nodiscard]] Task {
 public:
  struct promise_type : detail::Promise<T> {
    Task get_return_object() { return Task(Handle::from_promise(*this)); }
  };

  Task() = default;
  Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Task() {
    if (coroutine_) coroutine_.destroy();
  }

  /// Puts the task on `queue` without anyone awaiting it. REQUIRES: not started.
  void start(ReadyQueue& queue) { queue.push(coroutine_); }
  bool done() const { return coroutine_ && coroutine_.done(); }
  /// The result, or the exception. REQUIRES: done().
  T take() { return coroutine_.promise().take(); }

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> caller) {
    coroutine_.promise().continuation = caller;
    ReadyQueue::current().push(coroutine_);
  }
  T await_resume() { return take(); }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Task(Handle coroutine) : coroutine_(coroutine) {}

  Handle coroutine_;
};

}  // namespace tulle
