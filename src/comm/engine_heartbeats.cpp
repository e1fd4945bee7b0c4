// The engine's part in heartbeats: who beats is in heartbeats.hpp, what a beat says in beat.hpp.
#include <fmt/format.h>

#include "comm/beat.hpp"
#include "comm/heartbeats.hpp"
#include "tulle/comm/engine.hpp"

namespace tulle {

void Engine::start_heartbeat(const Heartbeat& heartbeat) {
  const Heartbeat complete = complete_heartbeat(heartbeat);
  if (!complete.is_on()) return;
  if (!progresses_alone()) start_progress_thread();
  {
    const std::lock_guard lock(lock_);
    if (heartbeat_ && *heartbeat_ != complete) {
      throw Error(ErrorKind::bad_input,
                  fmt::format("a heartbeat every {} s is on already", heartbeat_->interval_seconds))
          .at_rank(world_->rank);
    }
    if (heartbeat_) return;
    heartbeat_ = wanted_heartbeat_ = complete;
  }
  wake_driver();
}

void Engine::begin_heartbeats(const Heartbeat& heartbeat) {
  const std::unique_ptr<Heartbeats> listener = std::move(heartbeats_);
  heartbeats_ = std::make_unique<Heartbeats>(heartbeat, transport_->rank(), transport_->size());
  if (listener) heartbeats_->take_over(*listener);
  for (const int peer : left_) heartbeats_->forget(peer);
  look_at_heartbeats();
}

void Engine::send(int peer, Message message) {
  if (heartbeats_) heartbeats_->note_sent(peer);
  transport_->send(peer, std::move(message));
}

// A rank that computes for long is not dead.
void Engine::push() {
  if (heartbeats_ && transport_->now() >= heartbeats_->next_look()) send_beats();
  transport_->push();
}

// Peers are judged after a poll, so that what they sent while this rank was away has been heard.
void Engine::look_at_heartbeats() {
  if (!heartbeats_->is_on()) return;
  const Heartbeat& settings = heartbeats_->settings();
  if (const double now = transport_->now(); now >= heartbeats_->next_look()) {
    for (const auto& [peer, seconds] : heartbeats_->look(now, *transport_)) {
      fail_peer(peer, ErrorKind::peer_failed,
                fmt::format("it has been silent for {:.3g} s, and the limit of heartbeats is {} s", seconds,
                            settings.limit_seconds));
    }
    send_beats();
  }
  transport_->set_background_timer(heartbeats_->next_look(), 2 * settings.limit_seconds);
}

void Engine::send_beats() {
  for (const int peer : heartbeats_->take_due(transport_->now(), *transport_)) {
    transport_->send(peer, encode_beat(beat_of(heartbeats_->settings())));
  }
}

void Engine::take_beat(int source, const Message& message) {
  const Beat theirs = decode_beat(message.segments);
  if (!heartbeats_) heartbeats_ = std::make_unique<Heartbeats>(Heartbeat(), transport_->rank(), transport_->size());
  if (heartbeats_->is_forgotten(source)) return;
  if (theirs.is_last()) return heartbeats_->forget(source);
  if (!heartbeats_->is_on()) return heartbeats_->judge(source);
  if (theirs == beat_of(heartbeats_->settings())) return heartbeats_->judge(source);
  const Heartbeat& mine = heartbeats_->settings();
  constexpr double kMicrosecond = 1e-6;
  fail_peer(source, ErrorKind::mismatch,
            fmt::format("it beats every {:g} s with a limit of {:g} s, this rank every {} s with a limit of {} s",
                        kMicrosecond * static_cast<double>(theirs.interval_microseconds),
                        kMicrosecond * static_cast<double>(theirs.limit_microseconds), mine.interval_seconds,
                        mine.limit_seconds));
}

// On transports without a goodbye this is what tells an end from silence.
void Engine::take_leave() noexcept {
  if (!heartbeats_ || !heartbeats_->is_on()) return;
  try {
    for (int peer = 0; peer < transport_->size(); ++peer) {
      if (heartbeats_->is_forgotten(peer) || !transport_->is_reached(peer)) continue;
      transport_->send(peer, encode_beat({}));
    }
  } catch (...) {  // the others find out by the limit
  }
}

}  // namespace tulle
