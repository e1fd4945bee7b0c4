// How a new process takes the place of a worker that was lost, in a job that is under way on TCP.
//
//   auto server = tulle::server::Server::make(communicator, parameters, options, {});     // on each server
//   std::optional<tulle::Door> door;
//   if (communicator.rank() == 0) door.emplace(tulle::DoorOptions{.port = 30500});
//   {
//     tulle::server::Reception reception(server, servers, door ? &*door : nullptr);
//     server.run();
//   }
//
//   auto [communicator, place] = tulle::server::take_place({.host = "node0", .port = 30500});   // the new process
//   auto worker = tulle::server::Worker::make(communicator, parameters, options, place);
//   worker.join(weights);                                                          // the model as it is now
//
// Nobody waits for a newcomer: workers do not notice, and servers let it in from a thread of their own. It gets a
// communicator with the servers alone. Steps wait for it from its join on, as for any worker.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "tulle/comm/admission.hpp"
#include "tulle/server/server.hpp"

#pragma GCC visibility push(default)
namespace tulle::server {

struct ReceptionOptions {
  /// On rank 0, from the reception's thread: a group has come in, rank `servers + i` of it to the place of rank
  /// `places[i]` (0: none).
  std::function<void(const Communicator& group, std::span<const int> places)> on_arrival = {};
};

/// Lets in who waits at the door while it lives, as far as workers were lost.
///
/// Threads: it has one of its own, which sleeps while nobody waits.
/// Failure: newcomers that die on their way in harm nobody. Where a server is gone nobody is let in any more.
class Reception {
 public:
  /// Collective among the servers, which `servers` has alone and in the order of the job; nothing else may use that.
  /// `door` is rank 0's, null elsewhere. REQUIRES: before server.run(); the server and the door outlive it. Throws
  /// unsupported where the transport is not TCP.
  Reception(Server& server, Communicator servers, Door* door, ReceptionOptions options = {});
  /// Waits until rank 0's is to end as well.
  ~Reception();
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

 private:
  class Desk;
  std::unique_ptr<Desk> desk_;
};

/// What a new process gets.
struct TakenPlace {
  Communicator communicator;  ///< of the servers, who come first, and this process
  Place place;
};
/// Waits at the door until a worker is lost whose place this process may take. Throws as tulle::join() does.
TakenPlace take_place(const JoinOptions& where, const TcpOptions& options = {});

}  // namespace tulle::server
#pragma GCC visibility pop
