// A group of ranks that call collectives together.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "tulle/comm/engine.hpp"
#include "tulle/comm/request.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/comm/transport.hpp"

#pragma GCC visibility push(default)
namespace tulle {

class Communicator;

template <>
struct StoredResult<Communicator> {
  using Type = std::shared_ptr<Context>;
  static Communicator give(const std::shared_ptr<Engine>& engine, Type&& context);
};

/// A handle: copies mean the same group. Ranks must call the same operations on it in the same order; to start some in
/// any order, give each a channel of its own. Threads: any may call, but on one channel one at a time; the setters
/// while no operation is in flight.
class Communicator {
 public:
  /// All ranks of `transport`.
  explicit Communicator(std::unique_ptr<Transport> transport);

  int rank() const { return context_->rank; }
  int size() const { return context_->size(); }

  const Profile& profile() const { return context_->profile; }
  /// REQUIRES: the same on all ranks.
  void set_profile(const Profile& profile) { context_->set_profile(profile); }
  /// Which node each rank is on, as the transport knows it or as set by hand: equal numbers share memory.
  std::span<const int> nodes() const { return context_->nodes; }
  /// REQUIRES: the same on all ranks. Throws bad_input unless there is one for each rank.
  void set_nodes(std::span<const int> nodes);
  int node_count() const { return context_->node_count; }
  /// How long an operation may take where the call does not say. 300 s until set; infinity is no deadline. Throws
  /// bad_input unless it is above 0.
  void set_default_deadline(double seconds);
  /// What a member's death means here. It breaks the collectives in either case, and their error names the member.
  void set_peer_policy(PeerPolicy policy) { context_->peer_policy = policy; }

  /// The same ranks with an order of operations of its own, made without messages: for a tensor whose collectives start
  /// in another order on another rank. Number 0 is the communicator's own order. What auto learns and what stochastic
  /// rounding draws is each channel's own; an error on one breaks all. Throws bad_input from 2^24 on.
  Communicator channel(std::uint32_t number) const;
  std::uint32_t channel_number() const { return channel_->number; }

  /// The ranks that give the same `color`, ordered by `key` and then by rank. Collective; ⌈log2 P⌉ small messages.
  Communicator split(int color, int key = 0) { return isplit(color, key).wait(); }
  Request<Communicator> isplit(int color, int key = 0);

  /// Lets a thread of the library's make progress. Throws unsupported where the transport does not allow it.
  void start_progress_thread() { engine_->start_progress_thread(); }

  /// Lets ranks that are stopped or wedged become known, on all communicators of the job: see
  /// Engine::start_heartbeat(). REQUIRES: the same on all ranks; they need not call it at the same time.
  void start_heartbeat(const Heartbeat& heartbeat) { engine_->start_heartbeat(heartbeat); }

  /// Starts an operation of the caller's own: see Engine::start().
  template <class MakeTask>
  std::shared_ptr<Operation> start(const OperationSettings& settings, MakeTask make_task) const {
    return engine_->start(context_, *channel_, settings, std::move(make_task));
  }

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const std::shared_ptr<Context>& context() const { return context_; }
  /// What a layer above keeps with this channel. See ChannelMemory.
  std::unique_ptr<ChannelMemory>& memory() const { return channel_->memory; }

 private:
  friend struct StoredResult<Communicator>;
  Communicator(std::shared_ptr<Engine> engine, std::shared_ptr<Context> context, std::uint32_t channel);

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Context> context_;
  Channel* channel_;
};

inline Communicator StoredResult<Communicator>::give(const std::shared_ptr<Engine>& engine, Type&& context) {
  return {engine, std::move(context), 0};
}

/// What a rank does, written as a coroutine that awaits requests: runs in simulation, on threads and under MPI alike.
using Program = std::function<Task<>(Communicator&)>;

/// Runs `program` for this rank alone and drives its engine until the end. Throws what it throws.
void run_program(Communicator& communicator, const Program& program);

/// Runs a task that awaits requests of this communicator's engine, and drives that until the end.
void run_task(Communicator& communicator, Task<>& task);

template <class T>
Task<> store_result(Task<T> task, std::optional<T>& result) {
  result.emplace(co_await task);
}

/// The same of a task that gives a result. (A lambda would not do: GCC 12 gives those of all instances the same name.)
template <class T>
T run_task(Communicator& communicator, Task<T> task) {
  std::optional<T> result;
  Task<> storing = store_result(std::move(task), result);
  run_task(communicator, storing);
  return std::move(*result);
}

}  // namespace tulle
#pragma GCC visibility pop
