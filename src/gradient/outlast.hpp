// Waiting for exchanges whose results nobody wants any more, because they write to memory that is wanted.
#pragma once

#include "tulle/base/error.hpp"
#include "tulle/comm/request.hpp"
#include "tulle/comm/task.hpp"

namespace tulle::gradient {

/// Ends when the request is over, however it ends; empty ones are over. REQUIRES: its communicator is broken, or it may
/// last until its deadline. The request must outlive the task.
template <class T>
Task<> outlast(Request<T>& request) {
  if (!request.valid()) co_return;
  try {
    (void)co_await request;
  } catch (const Error&) {  // which whoever finished the step has seen
  }
}

}  // namespace tulle::gradient
