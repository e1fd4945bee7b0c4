// How a process becomes a rank of a job that is under way on TCP.
//
// Rank 0 of the job has a Door, at which newcomers wait. Between two operations all ranks call admit(), which lets in
// whoever is there:
//
//   std::optional<tulle::Door> door;                                    // of a job
//   if (comm.rank() == 0) door.emplace(tulle::DoorOptions{.port = 30500});
//   ...
//   comm = tulle::admit(comm, door ? &*door : nullptr);                 // between two steps, on all ranks
//
//   tulle::Communicator comm = tulle::join({.host = "node0", .port = 30500});   // of a newcomer
//
// Admission makes a new group with connections of its own; the old one stays as it was until its last handle goes. The
// ranks of the old group keep their numbers, newcomers follow in the order in which they came. Training state, such as
// residuals, is not the business of this layer.
//
// Threads: a door is used by one thread at a time, and has one of its own, which receives newcomers beside the job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tulle/comm/tcp.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct DoorOptions {
  std::string host = {};   ///< the address to listen at; empty: all of this host's
  std::uint16_t port = 0;  ///< 0: whichever is free; see Door::port()
  /// A newcomer that waits is asked once a second if it is still there, and is hung up on when it does not answer for
  /// so long. One that has not just answered is not let in: it was stopped, or its host died.
  double answer_seconds = 5;
  std::string job = {};  ///< newcomers must give the same in JoinOptions::job; empty: any may come
};

/// A socket at which processes wait that want to become ranks. Strangers are hung up on after seconds, also silent
/// ones, and never hold up the job, nor take more than a bounded number of its file descriptors.
class Door {
 public:
  /// Throws bad_input for an address that is none, system where nobody can listen there.
  explicit Door(const DoorOptions& options = {});
  Door(Door&&) noexcept;
  Door& operator=(Door&&) noexcept;
  /// Sends those who wait away; they try again until their deadline.
  ~Door();

  std::uint16_t port() const;
  /// How many could be let in now. Does not wait.
  int waiting();

  class Guests;

 private:
  friend Communicator admit(Communicator& members, Door* door, const TcpOptions& options);

  std::unique_ptr<Guests> guests_;
};

/// Lets in who waits at the door and has just answered there; it waits for nobody else, and at most 10 s for a newcomer
/// to connect. Collective; REQUIRES: no operation of `members` is in flight, and `door` is rank 0's
/// and null elsewhere. Where nobody waits it gives `members` back, after one small broadcast. The new group has the
/// profile of the old one, and on old ranks its default deadline.
/// Where it fails, because a newcomer died on its way in, all members throw the same and `members` is as usable as
/// before. Throws bad_input on all where rank 0 has no door or another rank has one.
Communicator admit(Communicator& members, Door* door, const TcpOptions& options);
inline Communicator admit(Communicator& members, Door* door) { return admit(members, door, {}); }

struct JoinOptions {
  std::string host = {};  ///< of the door
  std::uint16_t port = 0;
  double deadline_seconds = 60;  ///< until it is let in
  std::string job = {};          ///< what DoorOptions::job is
};
/// Waits at a door until the job lets this process in. Tries again where the host's name cannot be resolved yet, where
/// the door is not there yet or goes away, and where an admission fails. Throws deadline saying what happened last,
/// mismatch where versions, jobs or options differ.
Communicator join(const JoinOptions& where, const TcpOptions& options = {});

}  // namespace tulle
#pragma GCC visibility pop
