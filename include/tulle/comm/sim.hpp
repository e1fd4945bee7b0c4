// Deterministic simulation: P ranks in one thread, a virtual clock, and faults from a seed.
//
// Port model: every rank has one full-duplex port. A message of L bytes occupies the sender's port for β·L, its first
// byte arrives α later, and it then occupies the receiver's port for β·L. A single message takes α + β·L; the many
// messages of a split phase, or those that meet at the root of a tree, queue. Where a Network is given, ranks of a node
// share its port, and leaf switches have uplinks. Computation is charged to the rank's clock by the items that kernels
// report. Payloads are shared, not copied: a block that a thousand ranks forward exists once.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "tulle/comm/communicator.hpp"
#include "tulle/comm/network.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// A rank that is killed: what it has sent arrives, and nothing more is heard of it.
struct SimDeath {
  int rank = 0;
  std::uint64_t after_messages = 0;  ///< it dies when it is about to send one more
  /// The transports of the others say so within this time, each when the seed decides. Unset: never.
  std::optional<double> told_within_seconds = 0.0;
};

/// False news: at that time the transport of `to` says that `about` cannot be reached any more.
struct SimRumor {
  int to = 0;
  int about = 0;
  double seconds = 0;
};

/// What is sent between the ranks of the island and the others in that time is lost.
struct SimPartition {
  double begin_seconds = 0;
  double end_seconds = 0;
  std::vector<int> island;
};

/// What goes wrong: the first four each with a probability per message, decided by the seed, the others as they say.
struct SimFaults {
  double max_delay_seconds = 0;  ///< extra latency, uniform in [0, max]: messages overtake each other
  double drop = 0;
  double truncate = 0;  ///< loses bytes at the end of the head or of a segment
  double corrupt = 0;   ///< flips one bit
  std::vector<SimDeath> deaths = {};
  std::vector<SimRumor> rumors = {};
  std::vector<SimPartition> partitions = {};
};

struct SimOptions {
  int ranks = 2;
  Profile profile = {};
  std::uint64_t seed = 1;
  SimFaults faults = {};
  std::optional<Network> network = {};  ///< unset: flat_network(profile). Set: its α and β instead of the profile's
};

/// What all ranks together did.
struct SimTotals {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t faults = 0;              ///< messages dropped, truncated or corrupted
  std::uint64_t busiest_port_bytes = 0;  ///< through the port and direction that was occupied longest
  double busiest_port_seconds = 0;       ///< how long
};

class SimNetwork;

class SimWorld {
 public:
  /// Throws bad_input for a network that is not valid, and for faults of ranks that are not there.
  explicit SimWorld(const SimOptions& options);
  ~SimWorld();

  int size() const { return static_cast<int>(communicators_.size()); }
  Communicator& communicator(int rank) { return communicators_[static_cast<std::size_t>(rank)]; }

  /// Runs `program` on every rank until all have ended. Throws the first rank's error, if any.
  void run(const Program& program);
  /// The same, giving each rank's error or null. Of a rank that was killed before its program ended it is peer_failed.
  std::vector<std::exception_ptr> try_run(const Program& program);
  /// True once the rank was killed. It runs to its next wait then, so that a program which keeps what it has reached
  /// has to ask.
  bool is_dead(int rank) const;

  /// The virtual clock of the rank that is furthest ahead.
  double elapsed_seconds() const;
  SimTotals totals() const;

 private:
  std::shared_ptr<SimNetwork> network_;
  std::vector<Communicator> communicators_;
};

}  // namespace tulle
#pragma GCC visibility pop
