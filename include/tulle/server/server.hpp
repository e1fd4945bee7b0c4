// A server of parameters: adds up what workers push, steps, and hands out what changed, coded once for all workers.
//
//   auto server = tulle::server::Server::make(communicator, parameters, options, {.sgd = {.rate = 0.1}});
//   for (const auto id : server.shard()) server.set_weights(id, initial[id]);
//   server.run();                                   // until every worker has left
//
// Every parameter has steps of its own. One ends when the pushes of all workers but `backup` are in, or of all that are
// left; what comes later is dropped and counted, and its worker is told. The *model* is what workers hold: what a
// pull's coding lost is not part of it but of the error buffer, and comes with later pulls. A worker that joins again,
// because it was restarted, gets the whole model; what it had pushed to a step that is still open is withdrawn. So does
// a new process that takes a lost worker's place: see reception.hpp.
//
// Threads: one at a time, except what says otherwise. Programs (coroutines) use the functions that begin with `await`.
// Failure: a worker that is gone, that breaks the rules or that differs in its options is refused and named in
// losses(), and the others go on. Where no worker is left that left in order, run() throws peer_failed. A server that
// ends early, or is dropped before it has served, tells its workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tulle/base/error.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/server/options.hpp"

#pragma GCC visibility push(default)
namespace tulle::server {

/// A coding that a server computes: of every push, and of a pull once a step.
enum class Coding { decode_push, encode_pull };

/// What servers alone know.
struct ServerOptions {
  Sgd sgd = {};
  /// Every so many steps a server writes PATH.SERVER-of-SERVERS, each parameter as it was after that step; 0: never.
  /// What was there becomes PATH.SERVER-of-SERVERS.before.
  std::uint64_t checkpoint_every = 0;
  std::string checkpoint_path = {};
  /// A number that all servers of this job have, and no other job: files of several jobs do not go together.
  std::uint64_t checkpoint_run = 0;
  /// Called inside run() where one of these could not be written. The server goes on; must not throw.
  std::function<void(const Error&)> on_checkpoint_failure = {};
  /// How long a coding takes where time is simulated, which charges sums by the profile; unset: nothing. Must not
  /// throw.
  std::function<double(ParameterId, Coding)> coding_seconds = {};
};

/// What a server did.
struct ServerStats {
  std::uint64_t steps = 0;      ///< of all parameters together
  std::uint64_t accepted = 0;   ///< pushes
  std::uint64_t dropped = 0;    ///< pushes that came too late
  std::uint64_t encodings = 0;  ///< of pulls: one a step, however many workers there are
  std::uint64_t updates = 0;    ///< that were sent
  std::uint64_t models = 0;     ///< parameters that were sent whole, to workers that join or are far behind
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t failed_checkpoints = 0;  ///< that could not be written
  std::uint64_t restarts = 0;            ///< workers that joined again, and processes that took a lost worker's place
};

/// A worker that is gone, and how.
struct Loss {
  int rank = 0;
  std::string reason;
};

/// What load_checkpoint() found.
struct LoadedCheckpoint {
  std::uint64_t run = 0;  ///< `checkpoint_run` of the job that wrote it
  std::string note;       ///< why a newer file is left out; empty: there is none
};

class Server {
 public:
  /// Not collective. From here on the communicator tells its datagram ports of members that die. Throws bad_input for
  /// options that are not valid, names that are empty or not unique, and where this rank is a worker. Memory: f32 of
  /// weights, of what pulls owe and, with momentum, of velocities; what workers have pushed in this step; the last
  /// pulls, as far as they are smaller than the model.
  static Server make(Communicator communicator, std::vector<Parameter> parameters, const Options& options,
                     const ServerOptions& server_options);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();

  /// Of the job: servers and workers.
  int ranks() const;
  /// The parameters that this server holds.
  std::span<const ParameterId> shard() const;
  /// Zeros until set. REQUIRES: of this shard, as for all that follow; the right size; before run().
  void set_weights(ParameterId parameter, std::span<const float> weights);
  /// The model, as a worker that has pulled version() holds it.
  std::span<const float> weights(ParameterId parameter) const;
  /// What pulls have not delivered yet, to be subtracted from the model; empty: nothing.
  std::span<const float> pull_error(ParameterId parameter) const;
  std::span<const float> velocity(ParameterId parameter) const;
  /// The steps that have ended.
  std::uint64_t version(ParameterId parameter) const;

  /// Serves until every worker has left or is lost. Throws peer_failed where none left in order, deadline where nothing
  /// arrived for `deadline_seconds`, naming who is waited for.
  void run();
  Task<> await_run();

  /// Ends early, also before run(), and tells the workers why: their next call throws with that reason. Does nothing
  /// after run().
  void give_up(const Error& reason) noexcept;

  ServerStats stats() const;
  std::span<const Loss> losses() const;
  /// True while the worker of that rank is lost and nobody has taken its place. REQUIRES: it is a worker's.
  bool is_lost(int rank) const;
  /// Places that processes have taken which came later, by rank, in the order in which they joined.
  std::span<const int> arrivals() const;

  /// From now on run() looks for what adopt() brings. REQUIRES: before run().
  void expect_newcomers();
  /// The ranks of workers that are lost. From any thread beside run(), but not inside a program.
  std::vector<int> vacancies();
  /// Rank `servers + i` of `group` may join in the place of the worker of rank `places[i]`; 0: it has none. The group
  /// has all servers, with the numbers that they have in the job, and the newcomers after them. What the former
  /// holder still sends is thrown away. From any thread beside run(), but not inside a program.
  void adopt(const Communicator& group, const std::vector<int>& places);

  /// Weights, velocities, error buffers and versions, in one file that appears whole or not at all; what was there
  /// stays as PATH.SERVER-of-SERVERS.before. Files of other numbers of servers are removed once all servers have
  /// theirs. Throws system.
  void save_checkpoint(const std::string& path) const;
  /// True where load_checkpoint() has something to go on from.
  bool has_checkpoint(const std::string& path) const;
  /// Goes on from files of any number of servers: from the newest step of one run of which all of them have an intact
  /// file. Where they have none in common, and with backup workers or staleness from what a stopped job left,
  /// parameters may be of different versions. Throws bad_input where nothing intact is there, or what is there is of
  /// several runs or of other parameters; then nothing has changed. REQUIRES: before run().
  LoadedCheckpoint load_checkpoint(const std::string& path);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tulle::server
#pragma GCC visibility pop
