// The wires, the clocks of all ranks, and the events that are still to come.
#pragma once

#include <limits>
#include <vector>

#include "comm/sim_events.hpp"
#include "comm/sim_faults.hpp"
#include "comm/sim_flights.hpp"
#include "comm/sim_ports.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/comm/sim.hpp"

namespace tulle {

class SimNetwork {
 public:
  /// REQUIRES: `network` is valid for options.ranks.
  SimNetwork(const SimOptions& options, const Network& network);

  void attach(int rank, MessageSink& sink) { at(rank).sink = &sink; }
  double now(int rank) { return std::max(at(rank).clock, timer_time_); }
  /// Computing begins now, also where a timer has just rung and the rank's clock is behind.
  void charge(int rank, double seconds) { at(rank).clock = now(rank) + seconds * at(rank).slowness; }
  void set_timer(int rank, double seconds);
  void set_background_timer(int rank, double seconds, double patience_seconds);
  /// Changes while a message of `source` is under way, whose bytes would arrive one by one.
  std::uint64_t bytes_heard(int rank, int source) const {
    return flights_.is_under_way(source, rank) ? steps_ : std::uint64_t{0};
  }
  void send(int source, int target, Message message);
  /// Handles the next event. False where there is none, or nothing but heartbeats for longer than their patience.
  bool step();

  int ranks() const { return options_.ranks; }
  int node_of(int rank) const { return network_.node_of(rank); }
  Profile profile() const { return network_.profile(options_.profile); }
  bool is_dead(int rank) const { return ranks_[static_cast<std::size_t>(rank)].is_dead; }
  double elapsed_seconds() const;
  SimTotals totals() const;

 private:
  struct Rank {
    MessageSink* sink = nullptr;
    double clock = 0;
    double slowness = 1;                                     // of computation
    double timer = std::numeric_limits<double>::infinity();  // the earliest that is set
    double background_timer = std::numeric_limits<double>::infinity();
    std::uint64_t sent = 0;  // messages
    bool is_dead = false;
  };
  // What a transport says about a peer.
  struct News {
    int to;
    int about;
    const char* words;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::size_t lanes() const { return ports_.count() + static_cast<std::size_t>(options_.ranks); }
  std::uint32_t lane_of_rank(int rank) const {
    return static_cast<std::uint32_t>(ports_.count()) + static_cast<std::uint32_t>(rank);
  }
  void push(const SimEvent& event);
  bool is_at_a_stop() const;
  void move_on(const SimEvent& event);
  void deliver(const SimEvent& event);
  void ring(const SimEvent& event);
  void die(const SimDeath& death);
  void spread(const News& news, double seconds);
  void tell(const SimEvent& event);

  SimOptions options_;
  Network network_;
  Philox random_;
  SimFaultInjector faults_;
  SimPorts ports_;
  std::vector<Rank> ranks_;
  SimEvents events_;
  SimFlights flights_;
  std::vector<News> news_;
  double timer_time_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t foreground_ = 0;  // events to come that are no heartbeats
  double foreground_time_ = 0;    // of the last one
  double patience_seconds_ = 0;
  SimTotals totals_;
};

}  // namespace tulle
