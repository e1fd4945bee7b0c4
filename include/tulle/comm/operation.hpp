// One collective in flight, as its algorithm sees it: peers by rank, messages by step, a bill for computation.
//
// Threads: everything here is for the operation's own coroutine, which the engine's driver runs.
#pragma once

#include <algorithm>
#include <atomic>
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
#include "tulle/comm/context.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/comm/signature.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/comm/transport.hpp"
#include "tulle/stream/reduction.hpp"

#pragma GCC visibility push(default)
namespace tulle {

class Engine;

/// What an operation did on this rank. Headers are counted apart from data.
struct Counts {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;       ///< everything, headers included
  std::uint64_t data_bytes_sent = 0;  ///< arrays of indices and values alone
  std::uint64_t data_bytes_received = 0;
  std::uint32_t depth = 0;    ///< longest chain of dependent messages that ends here; counted by the simulator alone
  double encode_seconds = 0;  ///< of the processor, on this rank
  double decode_seconds = 0;
};

/// A message as an algorithm receives it.
struct Incoming {
  int from = 0;
  Step step = 0;
  std::uint32_t depth = 0;
  Segments segments;
};

inline constexpr int kAnyPeer = -1;

/// How an operation is run.
struct OperationSettings {
  CallSignature signature = {};
  double deadline_seconds = 0;  ///< 0: the communicator's default
  bool checksum = false;        ///< a CRC-32C of every payload
  bool is_blocking = false;     ///< the caller waits for it and does nothing else meanwhile
  /// It reads or writes memory of the caller's. Where its request is dropped before the end, it is ended at once and
  /// the communicator is broken, because nobody says how long that memory stays.
  bool borrows = false;
};

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  class Receive;
  class PollUntil;
  class Landing;
  /// Where a large segment of a message should be received, from the segments that came before it; empty: anywhere.
  using LandingFunction =
      std::function<Buffer(Step step, std::span<const Buffer> arrived, std::size_t segment, std::uint64_t bytes)>;

  Operation(Engine& engine, std::shared_ptr<Context> context, Channel& channel, const OperationSettings& settings);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  int rank() const { return context_->rank; }
  int size() const { return context_->size(); }
  std::uint64_t sequence() const { return sequence_; }
  std::uint32_t channel() const { return channel_.number; }
  const CallSignature& signature() const { return settings_.signature; }
  const Profile& profile() const { return context_->profile; }
  std::span<const int> nodes() const { return context_->nodes; }
  int node_count() const { return context_->node_count; }
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
  void count_encoding(double seconds) { counts_.encode_seconds += seconds; }
  void count_decoding(double seconds) { counts_.decode_seconds += seconds; }

  /// Null where the transport has none, where the communicator is a part of the job, and on channels.
  NativeAllreduce* native_allreduce() const;
  /// True where no other operation of this engine is in flight, so that blocking holds up nobody.
  bool is_alone() const;
  /// What this rank tells the others: how long the call before this one took here. REQUIRES: nothing is sent yet.
  void set_last_call(Ticks ticks) { last_call_ = std::max(last_call_, ticks); }
  /// The largest that this rank has heard of. Messages carry it, so that it is the largest of all ranks once every
  /// rank's data has, by whatever way, come here.
  Ticks last_call() const { return last_call_; }
  /// True where nobody but the library decides when messages are taken, so that a call's time says what it costs.
  bool is_timed() const;
  bool is_blocking() const { return settings_.is_blocking; }
  /// May be asked from any thread.
  bool is_finished() const { return state_.load(std::memory_order_acquire) == State::finished; }

 private:
  friend class Engine;
  enum class State { queued, running, draining, finished };
  struct Ticket;

  void set_sequence(std::uint64_t sequence);
  void accept(Incoming message, Ticks last_call);
  void fail(const Error& error);
  /// Puts the operation on the engine's list of those that may be over.
  void want_attention();
  std::string describe() const;
  std::string describe_waiting() const;
  std::string describe_peers(const Receive& receive) const;
  /// True where everybody who could send what the receive waits for has left.
  bool is_in_vain(const Receive& receive) const;
  Error left_alone(const Receive& receive) const;

  Engine& engine_;
  std::shared_ptr<Context> context_;
  Channel& channel_;
  OperationSettings settings_;
  std::uint64_t sequence_ = 0;
  std::uint64_t fingerprint_ = 0;
  double deadline_ = 0;
  Ticks last_call_ = 0;
  std::atomic<State> state_ = State::queued;
  std::optional<Error> error_;
  Counts counts_;
  std::shared_ptr<void> make_task_;  ///< what the task may be a lambda of
  Task<> task_;
  PoolVector<Incoming> inbox_;
  PoolVector<Receive*> waiting_;
  PoolVector<std::pair<Step, int>> taken_;  ///< what receive_next() gave, so that an error can say who is missing
  PollUntil* poll_ = nullptr;
  Landing* first_landing_ = nullptr;
  std::shared_ptr<Ticket> ticket_;  ///< shared with every message that is not sent yet
  bool is_drained_ = false;
  bool wants_attention_ = false;
  Operation* next_for_attention_ = nullptr;
  detail::PromiseBase* on_finished_ = nullptr;  ///< who awaits the whole operation
};

/// Large segments that arrive while this exists are put where the function says. Where several exist, the youngest that
/// gives an answer decides.
class Operation::Landing {
 public:
  Landing(Operation& operation, LandingFunction function);
  ~Landing();
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

 private:
  friend class Engine;

  Operation& operation_;
  LandingFunction function_;
  Landing* older_;
};

/// Awaitable of receive() and receive_next().
class [[nodiscard]] Operation::Receive {
 public:
  Receive(Operation& operation, int from, Step step) : operation_(operation), from_(from), step_(step) {}
  bool await_ready();
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> waiter) {
    wait(waiter.promise());
  }
  Incoming await_resume();

 private:
  friend class Operation;
  void wait(detail::PromiseBase& waiter);
  bool matches(const Incoming& message) const {
    return message.step == step_ && (from_ == kAnyPeer || from_ == message.from);
  }

  Operation& operation_;
  int from_;
  Step step_;
  std::optional<Incoming> message_;
  detail::PromiseBase* waiter_ = nullptr;
};

/// Awaitable of poll_until().
class [[nodiscard]] Operation::PollUntil {
 public:
  PollUntil(Operation& operation, std::function<bool()> ready) : operation_(operation), ready_(std::move(ready)) {}
  bool await_ready() { return ready_(); }
  template <class Promise>
  void await_suspend(std::coroutine_handle<Promise> waiter) {
    wait(waiter.promise());
  }
  void await_resume();

 private:
  friend class Operation;
  friend class Engine;
  void wait(detail::PromiseBase& waiter);

  Operation& operation_;
  std::function<bool()> ready_;
  detail::PromiseBase* waiter_ = nullptr;
};

}  // namespace tulle
#pragma GCC visibility pop
