#include "comm/heartbeats.hpp"

#include <cmath>

namespace tulle {
namespace {

// Fewer: silence is known later. More: ranks that wait wake up for it.
constexpr double kLooksPerInterval = 4;

}  // namespace

Heartbeats::Heartbeats(const Heartbeat& settings, int rank, int size)
    : settings_(settings), peers_(static_cast<std::size_t>(size)) {
  forget(rank);  // it needs no beats of its own
  if (!is_on()) next_look_ = std::numeric_limits<double>::infinity();
}

void Heartbeats::take_over(const Heartbeats& listener) {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    peers_[peer].is_judged = peers_[peer].was_heard = listener.peers_[peer].is_judged;
    peers_[peer].is_forgotten |= listener.peers_[peer].is_forgotten;
  }
}

// What came while this rank was away may still be on its way through the transport.
void Heartbeats::note_times(Peer& peer, std::uint64_t bytes, double now, double away) const {
  if (peer.was_sent) peer.sent_seconds = now;
  if (peer.was_heard || bytes != peer.bytes) {
    peer.heard_seconds = now;
  } else {
    peer.heard_seconds += away;
  }
  peer.bytes = bytes;
  peer.was_sent = peer.was_heard = false;
}

PoolVector<Heartbeats::Silence> Heartbeats::look(double now, const Transport& transport) {
  const double gap = now - last_look_;
  const double away = std::isfinite(gap) && gap > settings_.interval_seconds ? gap : 0;
  last_look_ = now;
  next_look_ = now + settings_.interval_seconds / kLooksPerInterval;
  PoolVector<Silence> silent;
  for (int number = 0; number < static_cast<int>(peers_.size()); ++number) {
    Peer& peer = at(number);
    if (peer.is_forgotten || !transport.is_reached(number)) continue;
    note_times(peer, transport.bytes_heard(number), now, away);
    if (!peer.is_judged || now - peer.heard_seconds < settings_.limit_seconds) continue;
    silent.push_back({number, now - peer.heard_seconds});
  }
  return silent;
}

PoolVector<int> Heartbeats::take_due(double now, const Transport& transport) {
  PoolVector<int> due;
  for (int number = 0; number < static_cast<int>(peers_.size()); ++number) {
    Peer& peer = at(number);
    const bool is_due = !peer.has_had_a_beat || now - peer.sent_seconds >= settings_.interval_seconds;
    if (!is_due || peer.is_forgotten || !transport.is_reached(number)) continue;
    peer.has_had_a_beat = true;
    peer.sent_seconds = now;
    due.push_back(number);
  }
  return due;
}

}  // namespace tulle
