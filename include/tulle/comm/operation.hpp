// One collective in flight, as its algorithm sees it: peers by rank, messages by step, a bill for computation.
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/comm/signature.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/comm/transport.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle {

class Engine;
struct Context;

/// What an operation did on this rank. Headers are counted apart from data.
struct Counts {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;       ///< everything, headers included
  std::uint64_t data_bytes_sent = 0;  ///< arrays of indices and values alone
  std::uint64_t data_bytes_received = 0;
  std::uint32_t depth = 0;  ///< longest chain of dependent messages that ends here; counted by the simulator alone
};

/// A message as an algorithm receives it.
struct Incoming {
  int from = 0;
  Step step = 0;
  std::uint32_t depth = 0;
  Segments segments;
};

inline constexpr int kAnyPeer = -1;

class Operation {
 public:
  class Receive;
  class PollUntil;
  /// Where a large segment of a message should be received, from the segments that came before it; empty: anywhere.
  using Landing =
      std::function<Buffer(Step step, std::span<const Buffer> arrived, std::size_t segment, std::uint64_t bytes)>;

  Operation(Engine& engine, std::shared_ptr<Context> context, const CallSignature& signature, double deadline_seconds,
            bool checksum);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  int rank() const;
  int size() const;
  std::uint32_t sequence() const { return sequence_; }
  const CallSignature& signature() const { return signature_; }
  const Profile& profile() const;
  std::span<const int> nodes() const;
  int node_count() const;
  const Counts& counts() const { return counts_; }

  /// Sends and goes on. The segments must not be written any more. `data_bytes` of them are arrays.
  /// REQUIRES: (to, step) is used once.
  void send(int to, Step step, Segments segments, std::uint64_t data_bytes);
  /// co_await gives the message that `from` sent in `step`.
  Receive receive(int from, Step step);
  /// co_await gives the next message of `step`, from whichever peer.
  Receive receive_next(Step step);
  /// co_await ends when `ready()` is true, which is asked whenever the engine makes progress.
  PollUntil poll_until(std::function<bool()> ready);

  /// Call now and then in a long computation while messages are under way: some transports need a thread to move them.
  void push();
  /// On the transport's clock.
  double seconds() const;
  /// Bills computation: γ times the items.
  void charge(const KernelReport& report);
  void charge(double seconds);
  void count_received(std::uint64_t data_bytes) { counts_.data_bytes_received += data_bytes; }
  /// Large segments that arrive from now on are put where `landing` says.
  void land_with(Landing landing) { landing_ = std::move(landing); }

  /// Null where the transport has none or where the communicator is a part of the job.
  NativeAllreduce* native_allreduce() const;
  /// True where no other operation of this engine is in flight, so that blocking holds up nobody.
  bool is_alone() const;
  /// What this rank tells the others with its frames: how long the call before this one took here. 0: unknown.
  void set_last_call(Ticks ticks) { last_call_ = ticks; }
  Ticks last_call() const { return last_call_; }
  /// True where nobody but the library decides when messages are taken, so that a call's time says what it costs.
  bool is_timed() const;
  void set_blocking(bool blocking) { blocking_ = blocking; }
  bool is_blocking() const { return blocking_; }

 private:
  friend class Engine;
  enum class State { running, draining, finished };

  void accept(Incoming message);
  void fail(const Error& error);
  bool outstanding_sends() const { return ticket_.use_count() > 1; }
  std::string describe() const;
  std::string describe_waiting() const;
  std::string describe_peers(const Receive& receive) const;

  Engine& engine_;
  std::shared_ptr<Context> context_;
  CallSignature signature_;
  std::uint32_t sequence_ = 0;
  std::uint64_t fingerprint_ = 0;
  double deadline_ = 0;
  double deadline_seconds_ = 0;
  bool checksum_ = false;
  bool blocking_ = false;
  Ticks last_call_ = 0;
  State state_ = State::running;
  std::optional<Error> error_;
  Counts counts_;
  Task<> task_;
  PoolVector<Incoming> inbox_;
  PoolVector<Receive*> waiting_;
  PoolVector<std::pair<Step, int>> taken_;  ///< what receive_next() gave, so that an error can say who is missing
  PollUntil* poll_ = nullptr;
  Landing landing_;
  std::shared_ptr<void> ticket_;         ///< shared with every message that is not sent yet
  std::coroutine_handle<> on_finished_;  ///< who awaits the whole operation
};

/// Awaitable of receive() and receive_next().
class [[nodiscard]] Operation::Receive {
 public:
  Receive(Operation& operation, int from, Step step) : operation_(operation), from_(from), step_(step) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> waiter);
  Incoming await_resume();

 private:
  friend class Operation;
  bool matches(const Incoming& message) const {
    return message.step == step_ && (from_ == kAnyPeer || from_ == message.from);
  }

  Operation& operation_;
  int from_;
  Step step_;
  std::optional<Incoming> message_;
  std::coroutine_handle<> waiter_;
};

/// Awaitable of poll_until().
class [[nodiscard]] Operation::PollUntil {
 public:
  PollUntil(Operation& operation, std::function<bool()> ready) : operation_(operation), ready_(std::move(ready)) {}
  bool await_ready() { return ready_(); }
  void await_suspend(std::coroutine_handle<> waiter);
  void await_resume();

 private:
  friend class Operation;
  friend class Engine;

  Operation& operation_;
  std::function<bool()> ready_;
  std::coroutine_handle<> waiter_;
};

}  // namespace tulle
