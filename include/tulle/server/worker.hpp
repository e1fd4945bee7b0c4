// A worker of a parameter server: pushes gradients of named parameters and pulls what changed in the model.
//
//   auto worker = tulle::server::Worker::make(communicator, parameters, options);
//   worker.join(weights);                                     // spans, filled with the servers' model
//   for (...) {                                               // a step
//     worker.push(id, gradient);                              // as back-propagation produces it; returns at once
//     worker.pull(id, weights[id]);                           // before the layer runs again
//   }
//   worker.leave();
//
// What coding a push loses stays in the parameter's error buffer and is part of the next push. A push that a server
// dropped is added back to it, where the recipe keeps one.
//
// Threads: one at a time. Programs (coroutines) use the functions that begin with `await`.
// Failure: where a server is gone, says why it refuses, or does not answer within the deadline, every waiting call
// throws an error that names it, and so does every later call. A worker that ends without leave() tells the servers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tulle/base/error.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/server/options.hpp"

#pragma GCC visibility push(default)
namespace tulle::server {

/// What a worker did.
struct WorkerStats {
  std::uint64_t pushes = 0;
  std::uint64_t accepted = 0;
  std::uint64_t dropped = 0;
  std::uint64_t updates = 0;  ///< pulls that brought a change
  std::uint64_t models = 0;   ///< pulls that brought a parameter whole
  std::uint64_t bytes_pushed = 0;
  std::uint64_t bytes_pulled = 0;
};

class Worker {
 public:
  /// Not collective, and sends nothing. From here on the communicator tells its datagram ports of members that die.
  /// Throws bad_input as Server::make() does, and where this rank is a server. `place` is what take_place() gave a
  /// process that came later; unset: the communicator's rank.
  static Worker make(Communicator communicator, std::vector<Parameter> parameters, const Options& options,
                     std::optional<Place> place = {});
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  ~Worker();

  std::span<const Parameter> parameters() const;

  /// Gets the whole model: one span for each parameter, of its size. Throws peer_failed where a server refuses.
  void join(std::span<const std::span<float>> weights);
  Task<> await_join(std::vector<std::span<float>> weights);

  /// Codes what is in the error buffer and the gradient, and sends it; with local steps only every `every`-th time. The
  /// gradient may be overwritten when this returns. The server takes a mean by `weight`, such as the tokens that the
  /// gradient is of; where all have the same it is the plain mean. With local steps what is sent has the mean weight of
  /// its gradients. Throws bad_input where sizes differ, where a value is not finite or the weight is not above 0 (then
  /// nothing has changed), and where the last push waits for its pull.
  void push(ParameterId parameter, std::span<const float> gradient, double weight = 1);
  /// This worker has no gradient for the parameter in this step. The servers count that as zeros of that weight.
  void skip(ParameterId parameter, double weight = 1);

  /// True when pull() would not wait. Makes some progress. Not inside a program.
  bool test(ParameterId parameter);
  /// Applies what arrived for the parameter, after waiting until at most `staleness` of its pushes are not settled.
  /// `weights` are those that join() and earlier pulls gave, unchanged.
  void pull(ParameterId parameter, std::span<float> weights);
  Task<> await_pull(ParameterId parameter, std::span<float> weights);

  /// Ends in order: the servers stop waiting for this worker. Waits for their answers.
  void leave();
  Task<> await_leave();

  /// Ends early and tells the servers why: they name it with that reason. Sends and goes on; every later call throws.
  void give_up(const Error& reason) noexcept;

  /// What pushes have not delivered yet; empty: nothing.
  std::span<const float> push_error(ParameterId parameter) const;
  /// Of the model that this worker holds.
  std::uint64_t version(ParameterId parameter) const;
  const WorkerStats& stats() const;

  /// Error buffers and counts of steps, by parameter name, versioned and checksummed. Pushes that are not settled count
  /// as dropped. A worker that loads it before its first push goes on where this one was.
  Buffer save_state() const;
  /// Throws bad_input where the state is damaged or of other parameters; then nothing has changed.
  void load_state(const Buffer& state);

 private:
  struct State;
  explicit Worker(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tulle::server
#pragma GCC visibility pop
