// A collective that was started: test it, wait for it, or co_await it inside a program.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "tulle/comm/engine.hpp"

namespace tulle {

/// Gives its result once. Dropping a request does not stop the operation, which the other ranks count on.
template <class T>
class [[nodiscard]] Request {
 public:
  Request(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation, std::shared_ptr<std::optional<T>> result)
      : engine_(std::move(engine)), operation_(std::move(operation)), result_(std::move(result)) {}

  /// Makes some progress. True when wait() would not wait.
  bool test() { return engine_->test(operation_); }
  /// The result, or the operation's error as an exception.
  T wait() {
    engine_->wait(operation_);
    return std::move(**result_);
  }

  bool await_ready() const { return Engine::Finished(operation_).await_ready(); }
  void await_suspend(std::coroutine_handle<> waiter) const { Engine::Finished(operation_).await_suspend(waiter); }
  T await_resume() {
    Engine::rethrow_error_of(*operation_);
    return std::move(**result_);
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<std::optional<T>> result_;
};

}  // namespace tulle
