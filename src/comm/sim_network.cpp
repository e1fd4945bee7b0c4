#include "comm/sim_network.hpp"

#include <algorithm>
#include <utility>

namespace tulle {
namespace {

// A timer's event names its rank and news name their place; the others name a flight. Of a beat or its timer the last
// bit is set, too.
constexpr std::uint32_t kTimerBit = std::uint32_t{1} << 31, kNewsBit = std::uint32_t{1} << 30,
                        kBackgroundBit = std::uint32_t{1} << 29;

bool is_background(const SimEvent& event) { return (event.what & kBackgroundBit) != 0; }
std::uint32_t number_of(const SimEvent& event) { return event.what & ~(kTimerBit | kNewsBit | kBackgroundBit); }

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
  for (const SimRumor& rumor : options.faults.rumors) {
    spread({rumor.to, rumor.about, "it is said to be gone"}, rumor.seconds);
  }
}

// One timer a rank is enough: when it rings, the engine asks for the next.
void SimNetwork::set_timer(int rank, double seconds) {
  if (seconds >= at(rank).timer) return;
  at(rank).timer = seconds;
  push({seconds, random_(), kTimerBit | static_cast<std::uint32_t>(rank), SimEvents::kNoLane});
}

void SimNetwork::set_background_timer(int rank, double seconds, double patience_seconds) {
  patience_seconds_ = std::max(patience_seconds_, patience_seconds);
  if (seconds >= at(rank).background_timer) return;
  at(rank).background_timer = seconds;
  push({seconds, random_(), kTimerBit | kBackgroundBit | static_cast<std::uint32_t>(rank), SimEvents::kNoLane});
}

void SimNetwork::push(const SimEvent& event) {
  foreground_ += is_background(event) ? 0 : 1;
  events_.push(event);
}

// Heartbeats go on for ever. What they can bring about, the end of a peer that is silent, takes as long as the limit.
bool SimNetwork::is_at_a_stop() const {
  if (events_.empty()) return true;
  return foreground_ == 0 && events_.front().time > foreground_time_ + patience_seconds_;
}

// A rank's clock may be ahead of the events, because it has computed. On a port of its own it queues at once; on one
// that it shares it must wait for what others send before.
void SimNetwork::send(int source, int target, Message message) {
  if (is_dead(source)) return;
  if (const SimDeath* const death = faults_.death_of(source, at(source).sent)) return die(*death);
  at(source).sent += 1;
  message.ticket.reset();  // receivers share the buffers, and nothing that is shared is written
  totals_.messages += 1;
  totals_.bytes += message.bytes();
  SimFlight flight{.transfer = {.source = source, .target = target, .bytes = message.bytes()}};
  const bool is_beat = kind_of_own_head(message.head.bytes()) == MessageKind::beat;
  flight.is_lost = faults_.strike(message);
  if (faults_.is_cut(source, target, now(source))) flight.is_lost = true;
  flight.transfer.delay_seconds = faults_.draw_delay_seconds();
  flight.parcel = SimParcel(std::move(message));
  const std::uint32_t place = flights_.put(std::move(flight));
  const SimEvent leaves{now(source), random_(), place | (is_beat ? kBackgroundBit : 0), lane_of_rank(source)};
  if (ports_.owns_port(source, target)) {
    move_on(leaves);
  } else {
    push(leaves);
  }
}

// Events at the same time happen in an order that the seed decides.
bool SimNetwork::step() {
  if (is_at_a_stop()) return false;
  const SimEvent event = events_.pop();
  steps_ += 1;
  if (!is_background(event)) {
    foreground_ -= 1;
    foreground_time_ = event.time;
  }
  if ((event.what & kTimerBit) != 0) {
    ring(event);
  } else if ((event.what & kNewsBit) != 0) {
    tell(event);
  } else if (flights_.at(number_of(event)).transfer.next == SimHop::arrived) {
    deliver(event);
  } else {
    move_on(event);
  }
  return true;
}

void SimNetwork::move_on(const SimEvent& event) {
  SimFlight& flight = flights_.at(number_of(event));
  const SimPorts::Passage passage = ports_.pass(flight.transfer, event.time);
  if (flight.is_lost) {
    flights_.take(number_of(event));
  } else {
    push({passage.seconds, event.tie, event.what, passage.port});
  }
}

void SimNetwork::deliver(const SimEvent& event) {
  SimFlight flight = flights_.take(number_of(event));
  Rank& rank = at(flight.transfer.target);
  if (rank.is_dead) return;
  rank.clock = std::max(rank.clock, event.time);
  rank.sink->deliver(flight.transfer.source, std::move(flight.parcel).open());
  rank.sink->settle();
}

// A timer that nobody needs any more must not move the clock, so the time counts only while it rings.
void SimNetwork::ring(const SimEvent& event) {
  Rank& rank = at(static_cast<int>(number_of(event)));
  if (rank.is_dead) return;
  double& timer = is_background(event) ? rank.background_timer : rank.timer;
  if (event.time == timer) timer = std::numeric_limits<double>::infinity();
  timer_time_ = event.time;
  rank.sink->settle();
  timer_time_ = 0;
}

void SimNetwork::die(const SimDeath& death) {
  at(death.rank).is_dead = true;
  foreground_time_ = std::max(foreground_time_, now(death.rank));  // others may be about to find it silent
  if (!death.told_within_seconds) return;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == death.rank) continue;
    spread({rank, death.rank, "it has died"}, now(death.rank) + *death.told_within_seconds * random_.uniform());
  }
}

void SimNetwork::spread(const News& news, double seconds) {
  push({seconds, random_(), kNewsBit | static_cast<std::uint32_t>(news_.size()), SimEvents::kNoLane});
  news_.push_back(news);
}

void SimNetwork::tell(const SimEvent& event) {
  const News news = news_[number_of(event)];
  Rank& rank = at(news.to);
  if (rank.is_dead) return;
  rank.clock = std::max(rank.clock, event.time);
  rank.sink->fail_peer(news.about, ErrorKind::peer_failed, news.words);
  rank.sink->settle();
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
