// The seam between collectives and networks: sends whole messages, delivers whole messages of unknown length.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "tulle/base/error.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/profile.hpp"
#include "tulle/stream/op.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Where a transport puts what arrived: the engine.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// A whole message arrived from `source`.
  virtual void deliver(int source, Message message) = 0;
  /// Asks where segment `segment` of a message under way should be received. `arrived` holds the segments in front
  /// of it that came with the head; those still to come are empty. An empty answer: wherever the transport likes.
  virtual Buffer landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived,
                             std::size_t segment, std::uint64_t bytes) = 0;
  /// `source` cannot be reached any more (peer_failed), or bytes that are no message arrived from it (bad_message).
  /// Concerns the communicators that it is a member of.
  virtual void fail_peer(int source, ErrorKind kind, const std::string& reason) = 0;
  /// `source` has ended in order, and everything that it sent is delivered: who still waits for it waits in vain.
  virtual void peer_left(int source) = 0;
  /// Resumes what became ready, and looks at deadlines. Called by the simulator, which runs many engines.
  virtual void settle() = 0;
};

/// A dense allreduce of the transport's own, e.g. MPI_Allreduce.
class NativeAllreduce {
 public:
  virtual ~NativeAllreduce() = default;
  /// Starts `result = op over ranks of input`. REQUIRES: every rank starts with the same arguments, in the same order.
  /// With `blocks` it returns only when the sum is made. The buffers are kept until it is.
  virtual void start(Buffer input, Buffer result, std::uint64_t count, ValueType type, OpCode op, bool blocks) = 0;
  /// True once the sums that were started are made.
  virtual bool test() = 0;

  /// Turns keep the order of calls: take one when called, start when it has come, then end it.
  std::uint64_t take_turn() { return turns_taken_++; }
  bool is_turn(std::uint64_t turn) const { return turn == turns_ended_; }
  void end_turn() { turns_ended_ += 1; }

 private:
  std::uint64_t turns_taken_ = 0;
  std::uint64_t turns_ended_ = 0;
};

/// The messages between the ranks of one job, as seen by one of them. Not thread-safe, but for what says so: the engine
/// has one driver at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Tells the transport who receives. Called once, before anything else.
  virtual void attach(MessageSink& sink) = 0;
  /// Takes the message and returns at once; messages to one peer may overtake each other.
  virtual void send(int peer, Message message) = 0;
  /// Delivers what has arrived to the sink. True if anything happened.
  virtual bool poll() = 0;
  /// Moves on messages that are under way while a coroutine computes; delivers nothing.
  virtual void push() {}
  /// Waits a moment because poll() found nothing for the `misses`-th time in a row. Called by the thread that polls,
  /// without the engine's lock. Here it spins, yields, then sleeps.
  virtual void idle(int misses);
  /// Ends an idle(), the next one where none is under way. Called by any thread; every other function by one at a time.
  virtual void wake();

  /// Seconds on a clock of its own. Called by any thread.
  virtual double now() const = 0;
  /// Asks for settle() to be called at time `seconds` of now(), where nothing else would.
  virtual void set_timer(double seconds) { (void)seconds; }
  /// The same for what goes on for ever, such as heartbeats: a simulation in which nothing else has happened for
  /// `patience_seconds` has come to a stop in spite of it.
  virtual void set_background_timer(double seconds, double patience_seconds) { (void)seconds, (void)patience_seconds; }
  /// Computation took place that would take this long. Only a simulator cares.
  virtual void charge(double seconds) { (void)seconds; }

  /// True where messages are taken also while the caller does something else.
  virtual bool progresses_alone() const { return false; }

  /// True where messages to `peer` leave without a connection being made for them.
  virtual bool is_reached(int peer) const { return (void)peer, true; }
  /// A number that changes when bytes of `peer` arrive, also while the message that they belong to is not whole. Always
  /// the same where the transport cannot tell: then messages count that were delivered.
  virtual std::uint64_t bytes_heard(int peer) const { return (void)peer, 0; }

  virtual Profile default_profile() const { return {}; }
  /// Which node a rank is on. The same on all ranks.
  virtual int node_of(int rank) const { return (void)rank, 0; }
  /// Null where the transport has none.
  virtual NativeAllreduce* native_allreduce() { return nullptr; }
  /// Throws unsupported, saying why, where poll() may not be called from another thread.
  virtual void require_progress_thread() const {}

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
};

}  // namespace tulle
#pragma GCC visibility pop
