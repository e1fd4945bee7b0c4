// The engine: routes messages to operations and resumes them. One for each transport.
//
// How a message finds its coroutine: the transport delivers it; the engine reads the header, looks up the communicator,
// the channel and the operation, compares fingerprints, and either hands it to a coroutine that waits for it or keeps
// it. Messages of operations that this rank has not started yet are kept too. Every arrival is inspected, also when
// nobody waits for it: that is how ranks that disagree are told at once.
//
// Threads: any thread may start operations, test and wait. One thread at a time is the *driver*: it polls the
// transport, resumes coroutines and so computes. That is the progress thread where there is one; else whoever waits
// first, while others sleep until their operation is over or the drive is free. What callers and the driver share is
// guarded by a lock that is held for a few instructions and never while anything computes, so that starting is always
// cheap.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/context.hpp"
#include "tulle/comm/heartbeat.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/comm/transport.hpp"

#pragma GCC visibility push(default)
namespace tulle {

class Heartbeats;

/// A mutex that knows whether the calling thread holds it, so that the loop that resumes coroutines can insist that it
/// does not.
class EngineLock {
 public:
  void lock() {
    mutex_.lock();
    held_by_this_thread() += 1;
  }
  void unlock() {
    held_by_this_thread() -= 1;
    mutex_.unlock();
  }
  /// How many engines' locks this thread holds.
  static int& held_by_this_thread();

 private:
  std::mutex mutex_;
};

class Engine final : private MessageSink {
 public:
  /// Where the last handle goes while the engine is running a coroutine, the engine ends when that has returned.
  static std::shared_ptr<Engine> make(std::unique_ptr<Transport> transport);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Transport& transport() { return *transport_; }
  /// The context of all ranks.
  const std::shared_ptr<Context>& world() const { return world_; }

  /// Starts an operation on a channel of `context`, numbered in the order of calls; its body is the task that
  /// `make_task(operation)` gives. That may be a lambda that is a coroutine: what it captures lives as long as its
  /// task. Throws broken where the context is. With a progress thread this numbers and queues, no more; else the task
  /// runs until it waits for a message.
  template <class MakeTask>
  std::shared_ptr<Operation> start(const std::shared_ptr<Context>& context, Channel& channel,
                                   const OperationSettings& settings, MakeTask make_task) {
    std::shared_ptr<Operation> operation =
        std::allocate_shared<Operation>(PoolAllocator<Operation>(), *this, context, channel, settings);
    const auto kept = std::allocate_shared<MakeTask>(PoolAllocator<MakeTask>(), std::move(make_task));
    operation->make_task_ = kept;
    operation->task_ = (*kept)(*operation);
    submit(operation);
    return operation;
  }
  /// True when the operation is over; one round of progress if not.
  bool test(const Operation& operation);
  /// Makes progress until the operation is over. Throws its error. Throws bad_input at once where this thread is
  /// running one of the engine's coroutines, which nobody else would resume: await instead.
  void wait(const Operation& operation);
  /// Makes progress until one of the operations is over, and gives its place. REQUIRES: there is one.
  std::size_t wait_any(std::span<const Operation* const> operations);
  /// The request of an operation is gone before the end: one that borrows is ended now, the others go on.
  void drop(const std::shared_ptr<Operation>& operation) noexcept;
  /// Throws the operation's error, if it has one. REQUIRES: it is over.
  static void rethrow_error_of(const Operation& operation);

  /// co_await this inside a program that runs on the engine: resumes when the operation is over.
  class Finished {
   public:
    explicit Finished(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
    bool await_ready() const { return operation_->is_finished(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> waiter) const {
      operation_->on_finished_ = &waiter.promise();
    }
    void await_resume() const { rethrow_error_of(*operation_); }
    /// Who waits is being destroyed, and must not be resumed.
    static void forget_waiter(Operation& operation) { operation.on_finished_ = nullptr; }

   private:
    std::shared_ptr<Operation> operation_;
  };

  /// co_await this inside a program that computes for long: messages and other operations go on, then the program does.
  class Yield {
   public:
    explicit Yield(Engine& engine) : engine_(engine) {}
    /// Where the transport needs no help nobody is waited for.
    bool await_ready() const { return engine_.transport_->progresses_alone(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> waiter) const {
      engine_.yielded_.push_back(&waiter.promise());
    }
    void await_resume() const {}

   private:
    Engine& engine_;
  };

  /// Starts a program of the caller's, which may await operations. It must outlive its run.
  void spawn(Task<>& program);
  /// Resumes what is ready, without looking for messages.
  void settle_now();
  /// One round: what arrived, what is ready, what is over, whose deadline has passed. True if anything happened. Does
  /// nothing where another thread drives, or from inside a coroutine.
  bool progress();
  /// Makes progress until `done()`. Where another thread drives, `done()` is asked again when something has ended or
  /// come, and after every `look_again_seconds`, where that is not 0. Throws bad_input as wait() does.
  template <class Predicate>
  void progress_until(Predicate done, double look_again_seconds = 0) {
    require_outside_of_coroutines();
    for (int misses = 0; !done();) {
      if (!take_drive()) {
        std::unique_lock lock(lock_);
        waiters_ += 1;
        follow(lock, look_again_seconds, [&] { return !is_driven_ || done(); });
        waiters_ -= 1;
        continue;
      }
      const Drive drive(*this);
      while (!done()) {
        misses = round() ? 0 : misses + 1;
        if (misses > 0) transport_->idle(misses - 1);
      }
      return;  // leaving the drive may end the engine
    }
  }

  /// How often to look again where `done()` depends on the clock.
  static constexpr double kLooksAtTheClock = 2e-3;

  /// Throws bad_input where this thread is running one of the engine's coroutines. See wait().
  void require_outside_of_coroutines() const;

  /// Makes progress from a thread of its own, until the engine ends. Throws unsupported where the transport cannot.
  void start_progress_thread();
  /// True where operations go on while the caller does something else.
  bool progresses_alone() const { return has_progress_thread_ || transport_->progresses_alone(); }

  /// Beats and listens for beats from now on, until the engine ends; nothing where the heartbeat is off. It takes a
  /// rank that makes progress while its caller computes, so that a progress thread is started where the transport does
  /// not progress alone. Throws bad_input for a heartbeat that cannot be, and where there is another one already;
  /// unsupported where the transport allows no progress thread.
  void start_heartbeat(const Heartbeat& heartbeat);

  /// Sends to a rank of the job. REQUIRES: called by the driver.
  void send(int peer, Message message);

  /// The channel of a context; made on the first call, without messages. Throws bad_input from 2^24 on.
  Channel& channel_of(Context& context, std::uint32_t number);
  /// The contexts that this rank knows.
  ContextTable& contexts() { return *contexts_; }
  /// Makes the context known; messages for it may have arrived before. Called by the driver.
  void add_context(const std::shared_ptr<Context>& context);

  /// Messages for operations that this rank has not started may take so much memory; more break the communicators that
  /// their sender is in. Half of the machine's memory until set. REQUIRES: called before operations start.
  void set_most_early_bytes(std::uint64_t bytes) { most_early_bytes_ = bytes; }

 private:
  friend class DatagramPort;
  friend class Operation;
  explicit Engine(std::unique_ptr<Transport> transport);
  static void release(Engine* engine);

  // Holds the drive that take_drive() gave.
  class Drive {
   public:
    explicit Drive(Engine& engine) : engine_(engine) {}
    ~Drive() { engine_.leave_drive(); }
    Drive(const Drive&) = delete;
    Drive& operator=(const Drive&) = delete;

   private:
    Engine& engine_;
  };
  struct Departure {
    int peer;
    Message message;
  };
  struct Deadline {
    double seconds;
    Operation* operation;
    friend auto operator<=>(const Deadline&, const Deadline&) = default;  // NOLINT(modernize-use-nullptr): sees a 0
  };

  void deliver(int source, Message message) override;
  Buffer landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived, std::size_t segment,
                     std::uint64_t bytes) override;
  void fail_peer(int source, ErrorKind kind, const std::string& reason) override;
  void peer_left(int source) override;
  void settle() override;

  // Callers.
  template <class Predicate>
  void follow(std::unique_lock<EngineLock>& lock, double look_again_seconds, Predicate done) {
    if (look_again_seconds > 0) {
      changed_.wait_for(lock, std::chrono::duration<double>(look_again_seconds), done);
    } else {
      changed_.wait(lock, done);
    }
  }
  void send_datagram(const Context& context, int to, std::uint32_t port, Segments segments);
  void open_port(Context& context, std::uint32_t port, DatagramQueue& queue);
  void close_port(Context& context, std::uint32_t port) noexcept;
  void submit(const std::shared_ptr<Operation>& operation);
  void wake_driver();
  bool take_drive();
  void leave_drive();
  bool runs_coroutines_here() const;
  void run_progress_thread();

  // The driver.
  bool round();
  void run_ready();
  void adopt();
  void adopt(std::span<const std::shared_ptr<Operation>> operations);
  void launch(Operation& operation);
  bool poll_transport();
  void run_polls();
  void reap();
  void reap(Operation& operation);
  void check_deadlines();
  void push();
  void begin_heartbeats(const Heartbeat& heartbeat);
  void look_at_heartbeats();
  void send_beats();
  void take_beat(int source, const Message& message);
  void take_leave() noexcept;
  void finish(Operation& operation, std::optional<Error> error);
  void forget(Operation& operation);
  void end_cancelled(Operation& operation);
  void route(const MessageHeader& header, int source, Message message);
  void route_data(Context& context, const MessageHeader& header, int source, Message message);
  void route_datagram(Context& context, const MessageHeader& header, int source, Message message);
  void hand_over(Operation& operation, const MessageHeader& header, int source, Message message);
  void keep_early(EarlyMessages& messages, const MessageHeader& header, int source, Message message);
  void take_early_messages(Operation& operation);
  void take_poison(Context& context, const MessageHeader& header, int source, const Message& message);
  void break_context(Context& context, const Error& error);
  void break_everything(const Error& error);
  void tell_peers(Context& context, const Error& error);
  void tell_ports(Context& context, int from, const Error& error);
  std::uint64_t first_unfinished(const Channel& channel);
  std::uint64_t next_sequence_of(const Channel& channel);
  Operation* operation_of(Channel& channel, std::uint64_t sequence);
  PoolVector<Channel*> channels_of(Context& context);
  bool has_left(const Context& context, int rank) const;
  std::optional<Error> wait_in_vain(Context& context);

  std::shared_ptr<ContextTable> contexts_;
  std::shared_ptr<Context> world_;

  EngineLock lock_;
  std::condition_variable_any changed_;  ///< an operation or a program is over, a datagram came, or the drive is free
  bool is_driven_ = false;
  int waiters_ = 0;
  std::atomic<bool> is_orphaned_ = false;  ///< no handle is left; the driver ends the engine
  PoolVector<std::shared_ptr<Operation>> submitted_;
  PoolVector<std::shared_ptr<Operation>> cancelled_;
  PoolVector<Task<>*> spawned_;
  PoolVector<Departure> departures_;
  std::optional<Heartbeat> heartbeat_;         ///< that was started
  std::optional<Heartbeat> wanted_heartbeat_;  ///< the same until the driver has taken it up
  std::atomic<bool> has_progress_thread_ = false;
  std::atomic<bool> stops_progress_thread_ = false;
  std::thread progress_thread_;

  // The driver's.
  PoolMap<ContextId, EarlyMessages> early_;  ///< for contexts that are not here yet
  std::shared_ptr<std::atomic<std::uint64_t>> early_bytes_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint64_t most_early_bytes_;
  std::set<Deadline, std::less<>, PoolAllocator<Deadline>> deadlines_;
  std::size_t running_ = 0;
  std::unique_ptr<Heartbeats> heartbeats_;  ///< null while they are off
  PoolVector<int> left_;                    ///< ranks of the job that have ended in order
  Operation* first_for_attention_ = nullptr;
  PoolVector<Operation*> polling_;
  PoolVector<detail::PromiseBase*> yielded_;  ///< who goes on after the next poll
  ReadyQueue ready_;
  bool is_settling_ = false;

  std::unique_ptr<Transport> transport_;  ///< goes first: its messages hold tickets of operations
};

}  // namespace tulle
#pragma GCC visibility pop
