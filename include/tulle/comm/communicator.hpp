// A group of ranks that call collectives together.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "tulle/comm/engine.hpp"
#include "tulle/comm/request.hpp"
#include "tulle/comm/task.hpp"
#include "tulle/comm/transport.hpp"

namespace tulle {

/// A handle: copies mean the same group. Ranks must call the same operations on it in the same order.
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
  /// How long an operation may take where the call does not say. 300 s until set.
  void set_default_deadline(double seconds) { context_->default_deadline_seconds = seconds; }

  /// What blocking calls on streams of this dimension and type have taught.
  AlgorithmState& history(std::uint64_t dimension, ValueType type) { return context_->history[{dimension, type}]; }

  /// The ranks that give the same `color`, ordered by `key` and then by rank. Collective; ⌈log2 P⌉ small messages.
  Communicator split(int color, int key = 0) { return isplit(color, key).wait(); }
  Request<Communicator> isplit(int color, int key = 0);

  /// Lets a thread of the library's make progress. Throws unsupported where the transport does not allow it.
  void start_progress_thread() { engine_->start_progress_thread(); }

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  Communicator(std::shared_ptr<Engine> engine, std::shared_ptr<Context> context)
      : engine_(std::move(engine)), context_(std::move(context)) {}
  struct Membership;
  static Task<> agree_on_split(Operation& operation, Communicator parent, Membership mine,
                               std::shared_ptr<std::optional<Communicator>> result);

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Context> context_;
};

/// What a rank does, written as a coroutine that awaits requests: runs in simulation, on threads and under MPI alike.
using Program = std::function<Task<>(Communicator&)>;

/// Runs `program` for this rank alone and drives its engine until the end. Throws what it throws.
void run_program(Communicator& communicator, const Program& program);

}  // namespace tulle
