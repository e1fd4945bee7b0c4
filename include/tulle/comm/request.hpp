// A collective that was started: test it, wait for it, or co_await it inside a program.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "tulle/base/buffer.hpp"
#include "tulle/comm/engine.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// What an operation leaves for its request, and what the request makes of that. An operation never holds a handle of
/// its engine.
template <class T>
struct StoredResult {
  using Type = T;
  static T give(const std::shared_ptr<Engine>&, Type&& stored) { return std::move(stored); }
};

/// Nothing, or an error that all ranks agreed on while the communicator stays as it was.
template <>
struct StoredResult<void> {
  using Type = std::optional<Error>;
  static void give(const std::shared_ptr<Engine>&, Type&& stored) {
    if (stored) throw *stored;
  }
};

/// Gives its result once; move-only. One thread may use a request at a time.
///
/// Dropping a request does not stop its operation, which the other ranks count on, unless it uses memory of the
/// caller's (an accumulator, a borrowed stream, a span): that one is ended before the destructor returns, so that the
/// memory may go, and the communicator is broken, on all ranks.
template <class T>
class [[nodiscard]] Request {
 public:
  using Stored = typename StoredResult<T>::Type;

  Request() = default;
  Request(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation,
          std::shared_ptr<std::optional<Stored>> result)
      : engine_(std::move(engine)), operation_(std::move(operation)), result_(std::move(result)) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&& other) noexcept {
    Request dropped(std::move(*this));
    engine_ = std::move(other.engine_);
    operation_ = std::move(other.operation_);
    result_ = std::move(other.result_);
    return *this;
  }
  ~Request() {
    if (operation_) engine_->drop(operation_);
  }

  /// False for an empty request, and once the result was given.
  bool valid() const { return operation_ != nullptr; }
  /// Makes some progress. True when wait() would not wait. REQUIRES: valid(), as for all that follow.
  bool test() { return engine_->test(*operation_); }
  /// The result, or the operation's error as an exception. Not inside a program, where it throws bad_input: co_await.
  T wait() {
    engine_->wait(*operation_);
    return take();
  }

  /// co_await gives what wait() gives.
  auto operator co_await() { return Awaiter(*this); }

  const Operation& operation() const { return *operation_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }

 private:
  /// Part of the frame of who waits. Where that is destroyed meanwhile, the operation may go on and must not resume it.
  class Awaiter {
   public:
    explicit Awaiter(Request& request) : request_(request) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (awaited_) Engine::Finished::forget_waiter(*awaited_);
      awaited_.reset();
    }

    bool await_ready() const { return request_.operation_->is_finished(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> waiter) {
      awaited_ = request_.operation_;
      Engine::Finished(awaited_).await_suspend(waiter);
    }
    T await_resume() {
      awaited_.reset();
      return request_.take();
    }

   private:
    Request& request_;
    std::shared_ptr<Operation> awaited_;
  };

  T take() {
    const std::shared_ptr<Operation> operation = std::move(operation_);
    const std::shared_ptr<Engine> engine = std::move(engine_);
    Engine::rethrow_error_of(*operation);
    return StoredResult<T>::give(engine, std::move(**result_));
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<std::optional<Stored>> result_;
};

/// Waits until all are over, so that none is in flight when this returns; they keep their results. Throws the first
/// one's error where some failed. Empty requests are passed over.
template <class T>
void wait_all(std::span<Request<T>> requests) {
  for (Request<T>& request : requests) {
    if (request.valid()) request.engine()->progress_until([&] { return request.operation().is_finished(); });
  }
  for (Request<T>& request : requests) {
    if (request.valid()) Engine::rethrow_error_of(request.operation());
  }
}

/// Waits until one of them is over and gives its place. REQUIRES: one is valid; all are of one engine.
template <class T>
std::size_t wait_any(std::span<Request<T>> requests) {
  PoolVector<const Operation*> operations;
  PoolVector<std::size_t> places;
  Engine* engine = nullptr;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].valid()) continue;
    engine = requests[i].engine().get();
    operations.push_back(&requests[i].operation());
    places.push_back(i);
  }
  return places[engine->wait_any(operations)];
}

}  // namespace tulle
#pragma GCC visibility pop
