// The engine: routes messages to operations and resumes them. One for each transport.
//
// How a message finds its coroutine: the transport delivers it; the engine reads the header, looks up the communicator
// and the operation, compares fingerprints, and either hands it to a coroutine that waits for it or keeps it. Messages
// of operations that this rank has not started yet are kept too. Every arrival is inspected, also when nobody waits
// for it: that is how ranks that disagree are told at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/algorithm_state.hpp"
#include "tulle/comm/operation.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/comm/transport.hpp"

namespace tulle {

/// A group of ranks and the operations they count together. Communicator is its handle.
struct Context {
  std::uint16_t id = 0;
  int rank = 0;
  PoolVector<int> world_ranks;    ///< of each member
  PoolVector<int> rank_of_world;  ///< the inverse; -1 for others
  PoolVector<int> nodes;          ///< of each member; numbers mean nothing but equal or not
  int node_count = 0;
  std::uint32_t nodes_crc = 0, profile_crc = 0;  ///< equal on all members, or operations tell
  std::uint32_t next_sequence = 0;
  std::optional<Error> broken;
  std::uint32_t broken_from = 0;  ///< the first operation that the error concerns
  Profile profile;
  double default_deadline_seconds = 300;
  std::map<std::pair<std::uint64_t, ValueType>, AlgorithmState> history;  ///< by dimension and type

  int size() const { return static_cast<int>(world_ranks.size()); }
  void set_nodes(PoolVector<int> of_members);
  void set_profile(const Profile& constants);
};

class Engine final : private MessageSink {
 public:
  explicit Engine(std::unique_ptr<Transport> transport);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Transport& transport() { return *transport_; }
  /// The context of all ranks.
  const std::shared_ptr<Context>& world() const { return world_; }

  /// Starts an operation on `context`, numbered in the order of calls; its body is the task that
  /// `make_task(operation)` gives. Throws broken where the context is. `deadline_seconds` of zero means the default.
  template <class MakeTask>
  std::shared_ptr<Operation> start(const std::shared_ptr<Context>& context, const CallSignature& signature,
                                   double deadline_seconds, bool checksum, MakeTask make_task) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Operation> operation = open(context, signature, deadline_seconds, checksum);
    operation->task_ = make_task(*operation);
    launch(operation);
    return operation;
  }
  /// True when the operation is over; one round of progress if not.
  bool test(const std::shared_ptr<Operation>& operation);
  /// Makes progress until the operation is over. Throws its error.
  void wait(const std::shared_ptr<Operation>& operation);
  /// Throws the operation's error, if it has one. REQUIRES: it is over.
  static void rethrow_error_of(const Operation& operation);

  /// co_await this inside a program that runs on the engine: resumes when the operation is over.
  class Finished {
   public:
    explicit Finished(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
    bool await_ready() const;
    void await_suspend(std::coroutine_handle<> waiter) const;
    void await_resume() const { rethrow_error_of(*operation_); }

   private:
    std::shared_ptr<Operation> operation_;
  };

  /// Starts a program of the caller's, which may await operations. It must outlive its run.
  void spawn(Task<>& program);
  /// Resumes what is ready, without looking for messages.
  void settle_now() { settle(); }
  /// One round: what arrived, what is ready, what is over, whose deadline has passed. True if anything happened.
  bool progress();
  /// Makes progress until `done()`.
  template <class Predicate>
  void progress_until(Predicate done) {
    for (int misses = 0; !done(); ++misses) {
      if (progress()) {
        misses = 0;
      } else {
        transport_->idle(misses);
      }
    }
  }

  /// Makes progress from a thread of its own, until the engine ends. Throws unsupported where the transport cannot.
  void start_progress_thread();
  /// True where operations go on while the caller does something else.
  bool progresses_alone() const { return progress_thread_.joinable() || transport_->progresses_alone(); }

  /// A number that no context of this engine has or will have. Ranks agree on the largest of theirs.
  std::uint16_t reserve_context_id();
  /// Makes the context known; messages for it may have arrived before.
  void add_context(const std::shared_ptr<Context>& context);

 private:
  friend class Operation;
  struct EarlyMessage {
    MessageHeader header;
    int source;
    Message message;
  };

  void deliver(int source, Message message) override;
  Buffer landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived, std::size_t segment,
                     std::uint64_t bytes) override;
  void fail_peer(int source, const std::string& reason) override;
  void settle() override;

  std::shared_ptr<Operation> open(const std::shared_ptr<Context>& context, const CallSignature& signature,
                                  double deadline_seconds, bool checksum);
  void launch(const std::shared_ptr<Operation>& operation);
  void route(const MessageHeader& header, int source, Message message);
  void hand_over(Operation& operation, const MessageHeader& header, int source, Message message);
  void take_early_messages(Operation& operation);
  void take_poison(const std::shared_ptr<Context>& context, const MessageHeader& header, int source,
                   const Message& message);
  void run_polls();
  void reap();
  void finish(Operation& operation, std::optional<Error> error);
  void check_deadlines();
  void break_context(Context& context, const Error& error);
  void break_everything(const Error& error);
  void tell_peers(Context& context, std::uint32_t first_sequence, const Error& error);
  void drop_finished();
  std::shared_ptr<Context> context_of(std::uint16_t id) const;
  Operation* operation_of(const Context& context, std::uint32_t sequence) const;
  void run_progress_thread();

  std::recursive_mutex mutex_;  // recursive: a program that runs on the engine starts operations on it
  std::condition_variable_any finished_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Context> world_;
  PoolVector<std::shared_ptr<Context>> contexts_;
  std::uint32_t next_context_id_ = 1;
  PoolVector<std::shared_ptr<Operation>> active_;
  PoolVector<EarlyMessage> early_;
  ReadyQueue ready_;
  bool settling_ = false;
  std::thread progress_thread_;
  bool stop_progress_thread_ = false;
};

}  // namespace tulle
