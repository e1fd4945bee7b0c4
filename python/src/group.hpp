// A communicator as Python holds it, and how Python waits: in slices, so that Ctrl-C ends a wait, and without the GIL.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>

#include "core.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/communicator.hpp"

namespace tulle::python {

using Clock = std::chrono::steady_clock;
// Shorter: looking for signals costs. Longer: Ctrl-C feels slow.
constexpr std::chrono::milliseconds kSlice(50);

/// Gives Python a chance to see what happened meanwhile. Throws what a signal handler raises. REQUIRES: the GIL.
inline void look_for_signals() {
  release_ended_views();
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// Makes progress until `done()`. Throws what a signal handler raises; what was waited for then goes on.
/// REQUIRES: the GIL, which is released meanwhile.
template <class Done>
void wait_in_slices(Engine& engine, Done done) {
  while (!done()) {
    {
      const py::gil_scoped_release released;
      const Clock::time_point slice_ends = Clock::now() + kSlice;
      // Where another thread drives, it tells when something has ended; to look more often wakes this one for nothing.
      engine.progress_until([&] { return done() || Clock::now() >= slice_ends; }, kSlice.count() * 1e-3);
    }
    look_for_signals();
  }
}

/// Returns when the operation is over. Throws what a signal handler raises; the operation then goes on.
inline void await_end(Engine& engine, const Operation& operation) {
  wait_in_slices(engine, [&] { return operation.is_finished(); });
}

/// The result of a request.
template <class T>
T finish(Request<T> request) {
  await_end(*request.engine(), request.operation());
  return without_gil([&] { return request.wait(); });
}

/// A communicator that knows whose it is: a forked child has neither its connections nor its threads.
class Group {
 public:
  explicit Group(Communicator communicator) : communicator_(std::move(communicator)) {}
  Group(Group&&) noexcept = default;
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (!communicator_) return;
    if (!is_here()) {  // its destructor would wait for threads that are not here
      new Communicator(std::move(*communicator_));
      return;
    }
    const py::gil_scoped_release released;
    communicator_.reset();
  }

  bool is_here() const { return owner_ == getpid(); }
  /// Throws bad_input where it was closed, and unsupported in a forked child.
  Communicator& get() {
    release_ended_views();
    if (!communicator_) throw Error(ErrorKind::bad_input, "the communicator was closed");
    if (is_here()) return *communicator_;
    throw Error(ErrorKind::unsupported,
                "this process was forked from a rank: the communicator belongs to the parent; connect() again or exec");
  }
  void close() {
    if (!is_here()) return;
    std::optional<Communicator> last = std::exchange(communicator_, std::nullopt);
    const py::gil_scoped_release released;
    last.reset();
  }

 private:
  std::optional<Communicator> communicator_;
  pid_t owner_ = getpid();
};

}  // namespace tulle::python
