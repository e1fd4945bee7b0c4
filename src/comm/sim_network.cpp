#include "comm/sim_network.hpp"

#include <algorithm>
#include <utility>

namespace tulle {
namespace {

// A timer's event names its rank; the others name a flight.
constexpr std::uint32_t kTimerBit = std::uint32_t{1} << 31;

}  // namespace

SimNetwork::SimNetwork(const SimOptions& options, const Network& network)
    : options_(options),
      network_(network),
      random_(options.seed),
      faults_(options.faults, random_),
      ports_(network, options.ranks),
      ranks_(static_cast<std::size_t>(options.ranks)),
      events_(lanes()) {
  for (const Slowed& straggler : network.stragglers) at(straggler.number).slowness *= straggler.factor;
}

// One timer a rank is enough: when it rings, the engine asks for the next.
void SimNetwork::set_timer(int rank, double seconds) {
  if (seconds >= at(rank).timer) return;
  at(rank).timer = seconds;
  events_.push({seconds, random_(), kTimerBit | static_cast<std::uint32_t>(rank), SimEvents::kNoLane});
}

// A rank's clock may be ahead of the events, because it has computed. On a port of its own it queues at once; on one
// that it shares it must wait for what others send before.
void SimNetwork::send(int source, int target, Message message) {
  message.ticket.reset();  // receivers share the buffers, and nothing that is shared is written
  totals_.messages += 1;
  totals_.bytes += message.bytes();
  SimFlight flight{.transfer = {.source = source, .target = target, .bytes = message.bytes()}};
  flight.is_lost = faults_.strike(message);
  flight.transfer.delay_seconds = faults_.draw_delay_seconds();
  flight.parcel = SimParcel(std::move(message));
  const std::uint32_t place = flights_.put(std::move(flight));
  const SimEvent leaves{now(source), random_(), place, lane_of_rank(source)};
  if (ports_.owns_port(source, target)) {
    move_on(leaves);
  } else {
    events_.push(leaves);
  }
}

// Events at the same time happen in an order that the seed decides.
bool SimNetwork::step() {
  if (events_.empty()) return false;
  const SimEvent event = events_.pop();
  if ((event.what & kTimerBit) != 0) {
    ring(event);
  } else if (flights_.at(event.what).transfer.next == SimHop::arrived) {
    deliver(event);
  } else {
    move_on(event);
  }
  return true;
}

void SimNetwork::move_on(const SimEvent& event) {
  SimFlight& flight = flights_.at(event.what);
  const SimPorts::Passage passage = ports_.pass(flight.transfer, event.time);
  if (flight.is_lost) {
    flights_.take(event.what);
  } else {
    events_.push({passage.seconds, event.tie, event.what, passage.port});
  }
}

void SimNetwork::deliver(const SimEvent& event) {
  SimFlight flight = flights_.take(event.what);
  Rank& rank = at(flight.transfer.target);
  rank.clock = std::max(rank.clock, event.time);
  rank.sink->deliver(flight.transfer.source, std::move(flight.parcel).open());
  rank.sink->settle();
}

// A timer that nobody needs any more must not move the clock, so the time counts only while it rings.
void SimNetwork::ring(const SimEvent& event) {
  Rank& rank = at(static_cast<int>(event.what & ~kTimerBit));
  if (event.time == rank.timer) rank.timer = std::numeric_limits<double>::infinity();
  timer_time_ = event.time;
  rank.sink->settle();
  timer_time_ = 0;
}

double SimNetwork::elapsed_seconds() const {
  double latest = 0;
  for (const Rank& rank : ranks_) latest = std::max(latest, rank.clock);
  return latest;
}

SimTotals SimNetwork::totals() const {
  SimTotals totals = totals_;
  totals.faults = faults_.count();
  totals.busiest_port_bytes = ports_.busiest().bytes;
  totals.busiest_port_seconds = ports_.busiest().seconds;
  return totals;
}

}  // namespace tulle
