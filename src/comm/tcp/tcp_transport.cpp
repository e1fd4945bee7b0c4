#include "comm/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// Reads in a row on one connection. A flood from one peer must not keep the engine from resuming what is ready.
constexpr int kMostReads = 16;
constexpr std::size_t kMostEvents = 64;

// Poison, datagrams and beats may find that their receiver has left; an operation counts on all its members.
bool belongs_to_operation(const Message& message) {
  return kind_of_own_head(message.head.bytes()) == MessageKind::data;
}

}  // namespace

void TcpTransport::require_own_process() const {
  if (!is_in_child_.load(std::memory_order_relaxed)) return;
  throw Error(ErrorKind::unsupported,
              "this process was forked from a rank: its connections belong to the parent; connect() again or exec")
      .at_rank(rank_);
}

// ---------------------------------------------------------------- out

void TcpTransport::send(int peer, Message message) {
  require_own_process();
  assert(peer != rank_);
  const std::lock_guard lock(mutex_);
  for (const Buffer& segment : message.segments) {
    if (segment.is_phantom()) throw Error(ErrorKind::unsupported, "a phantom buffer cannot be sent by TCP");
  }
  Link& to = link(peer);
  if (to.state == Link::State::lost) return;  // the engine knows
  if (to.state == Link::State::condemned && kind_of_own_head(message.head.bytes()) != MessageKind::poison) return;
  if (to.state == Link::State::left || to.said_goodbye) {
    if (belongs_to_operation(message)) note_failure(peer, "it has left the job");
    return;
  }
  if (to.state == Link::State::absent) {
    to.unconnected.push_back(std::move(message));
    greeter_->call(peer);
    return;
  }
  to.out.put(std::move(message), to.can_pull);
  if (!to.watches_writability) write(peer);
}

void TcpTransport::write(int peer) {
  Link& to = link(peer);
  if (const int code = to.out.write_to(to.fd.get()); code != 0) {
    note_failure(peer, describe_errno("the connection is lost: send", code));
    return;
  }
  watch(peer);
}

void TcpTransport::watch(int peer) {
  Link& to = link(peer);
  if (to.out.has_more() == to.watches_writability) return;
  to.watches_writability = to.out.has_more();
  poller_.change(to.fd.get(), static_cast<Poller::Key>(peer),
                 to.watches_writability ? std::uint32_t{EPOLLIN | EPOLLOUT} : std::uint32_t{EPOLLIN});
}

void TcpTransport::push() {
  require_own_process();
  const std::lock_guard lock(mutex_);
  for (int peer = 0; peer < size(); ++peer) {
    if (link(peer).state == Link::State::open && link(peer).watches_writability) write(peer);
  }
}

// ---------------------------------------------------------------- in

bool TcpTransport::poll() {
  require_own_process();
  const std::lock_guard lock(mutex_);
  bool happened = deliver_early();
  happened |= report_failures();
  happened |= handle_events();
  happened |= pull_some();
  if (greeter_->is_busy()) greeter_->check_times();
  check_silence();
  return happened;
}

// A peer that has connected with everybody may send to one who has not.
bool TcpTransport::deliver_early() {
  if (early_.empty()) return false;
  for (Arrival& arrival : std::exchange(early_, {})) take_message(arrival.source, std::move(arrival.message));
  return true;
}

bool TcpTransport::handle_events() {
  epoll_event storage[kMostEvents];
  bool happened = false;
  for (const epoll_event& event : poller_.look(storage, 0)) {
    const Poller::Key key = event.data.u64;
    if (key == Poller::kWakeKey) continue;
    happened = true;
    if (key >= Greeter::kFirstKey) {
      greeter_->handle(key);
    } else {
      handle_link(static_cast<int>(key), event.events);
    }
  }
  return happened;
}

void TcpTransport::handle_link(int peer, std::uint32_t events) {
  if (link(peer).state == Link::State::condemned) return handle_condemned(peer);
  if (link(peer).state != Link::State::open) return;
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) read(peer);
  if ((events & EPOLLOUT) != 0 && link(peer).state == Link::State::open) write(peer);
}

void TcpTransport::read(int peer) {
  Link& from = link(peer);
  const std::span<std::byte> scratch(scratch_.data_for_landing(), scratch_.size());
  try {
    for (int i = 0; i < kMostReads && from.state == Link::State::open; ++i) {
      switch (from.in.read_from(from.fd.get(), scratch, *this)) {
        case Inbox::State::more: break;
        case Inbox::State::dry: return;
        case Inbox::State::closed: return end_of_stream(peer);
        case Inbox::State::failed:
          return lose(peer, ErrorKind::peer_failed, describe_errno("the connection broke", errno));
      }
    }
  } catch (const std::exception& error) {  // also bad_alloc, for a length that no memory can hold
    condemn(peer, fmt::format("{} (on the connection from {} to {})", error.what(),
                              address_of_other_end(from.fd.get()).text(), address_of_this_end(from.fd.get()).text()));
  }
}

void TcpTransport::end_of_stream(int peer) {
  Link& from = link(peer);
  const bool is_pulling =
      std::any_of(pulls_.begin(), pulls_.end(), [&](const Pull& pull) { return pull.source == peer; });
  const bool is_farewell = from.said_goodbye && !from.in.is_inside_frame() && !is_pulling && !from.out.has_unpulled();
  if (is_farewell) {
    close(peer, Link::State::left);
    if (sink_ != nullptr && !is_leaving_) sink_->peer_left(peer);
  } else {
    lose(peer, ErrorKind::peer_failed, "it closed the connection without a goodbye: its process has ended");
  }
}

Buffer TcpTransport::landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived,
                                 std::size_t segment, std::uint64_t bytes) {
  return sink_ != nullptr ? sink_->landing_for(source, head, arrived, segment, bytes) : Buffer();
}

void TcpTransport::take_message(int source, Message message) {
  if (is_leaving_) return;
  if (kind_of_own_head(message.head.bytes()) == MessageKind::poison) {
    last_poison_ = Message{message.head, message.segments, nullptr, 0};
  }
  if (sink_ != nullptr) {
    sink_->deliver(source, std::move(message));
  } else {
    early_.push_back({source, std::move(message)});
  }
}

void TcpTransport::take_pull_order(int source, PullOrder order) {
  pulls_.push_back({source, std::move(order)});
  if (is_leaving_) release_pulls();
}

void TcpTransport::take_pulled(int source, std::uint64_t number) {
  if (link(source).out.take_pulled(number)) return;
  throw Error(ErrorKind::bad_message, fmt::format("frame field 'number': no message {} waits to be pulled", number));
}

void TcpTransport::take_goodbye(int source) { link(source).said_goodbye = true; }

// One chunk in each round, of one message after the other.
bool TcpTransport::pull_some() {
  if (pulls_.empty()) return false;
  Pull pull = std::move(pulls_.front());
  pulls_.pop_front();
  if (!pull_chunk(pull)) {
    lose(pull.source, ErrorKind::peer_failed, describe_errno("its memory cannot be read", errno));
  } else if (pull.next_piece < pull.order.pieces.size()) {
    pulls_.push_back(std::move(pull));
  } else {
    link(pull.source).out.put_pulled(pull.order.number);
    write(pull.source);
    take_message(pull.source, std::move(pull.order.message));
  }
  return true;
}

bool TcpTransport::pull_chunk(Pull& pull) {
  std::uint64_t left = options_.pull_chunk_bytes;
  while (left > 0 && pull.next_piece < pull.order.pieces.size()) {
    PullOrder::Piece& piece = pull.order.pieces[pull.next_piece];
    const std::uint64_t bytes = std::min(left, piece.bytes);
    if (!read_memory({card_of(pull.source).probe.process, piece.from}, piece.to, bytes)) return false;
    piece = {piece.to + bytes, piece.from + bytes, piece.bytes - bytes};
    left -= bytes;
    if (piece.bytes == 0) pull.next_piece += 1;
  }
  return true;
}

// ---------------------------------------------------------------- waiting

// Spin while an answer is likely to be on its way; where ranks share cores, the peer that owes it needs this one. Then
// sleep: whatever arrives ends it. The limit is for deadlines, which the engine looks at between sleeps; fifty looks a
// second are a thousandth of a core.
void TcpTransport::idle(int misses) {
  constexpr int kSpins = 50, kLongestMilliseconds = 20;
  require_own_process();
  const int spins = placement_.shares_cores ? 2 : kSpins;
  if (misses < spins) {
    if (placement_.shares_cores) sched_yield();
    return;
  }
  poller_.sleep(std::min(misses - spins + 1, kLongestMilliseconds));
}

// ---------------------------------------------------------------- failure

void TcpTransport::check_silence() {
  constexpr double kChecksPerSilence = 8;
  const double now = steady_seconds();
  if (now < next_check_seconds_) return;
  next_check_seconds_ = now + options_.silence_seconds / kChecksPerSilence;
  for (int peer = 0; peer < size(); ++peer) {
    Link& each = link(peer);
    if (each.state == Link::State::condemned && now - each.condemned_seconds > options_.farewell_seconds) {
      close(peer, Link::State::lost);
    }
    if (each.state != Link::State::open) continue;
    if (each.answered_seconds == 0 || !is_unanswered(each.fd.get())) each.answered_seconds = now;
    if (now - each.answered_seconds < options_.silence_seconds) continue;
    lose(peer, ErrorKind::peer_failed, fmt::format("its host has not answered for {} s", options_.silence_seconds));
  }
}

// Told to the engine by the next poll: it may be in the middle of something.
void TcpTransport::note_failure(int peer, std::string reason) {
  failures_.push_back({peer, ErrorKind::peer_failed, std::move(reason)});
  poller_.wake();
}

bool TcpTransport::report_failures() {
  if (failures_.empty()) return false;
  const PoolVector<Failure> failures = std::exchange(failures_, {});  // telling the peers may fail again
  for (const Failure& failure : failures) {
    // What a peer said last is worth more than that it is gone: a poison names the cause.
    if (link(failure.peer).state == Link::State::open) read(failure.peer);
    lose(failure.peer, failure.kind, failure.reason);
  }
  return true;
}

void TcpTransport::lose(int peer, ErrorKind kind, const std::string& reason) {
  if (link(peer).state == Link::State::lost) return;
  const bool is_known = link(peer).state == Link::State::condemned;
  close(peer, Link::State::lost);
  if (is_leaving_ || is_known) return;
  if (sink_ != nullptr) {
    sink_->fail_peer(peer, kind, reason);
  } else {
    failures_.push_back({peer, kind, reason});
  }
}

// The engine sends a poison, which says what arrived and leaves behind what waits already. The peer's bytes are dropped
// until it ends the connection: a socket that is closed before is reset, and the poison may be lost with that.
void TcpTransport::condemn(int peer, const std::string& reason) {
  if (sink_ == nullptr || is_leaving_) return lose(peer, ErrorKind::bad_message, reason);
  link(peer).state = Link::State::condemned;
  link(peer).condemned_seconds = steady_seconds();
  std::erase_if(pulls_, [&](const Pull& pull) { return pull.source == peer; });
  sink_->fail_peer(peer, ErrorKind::bad_message, reason);
  handle_condemned(peer);
}

void TcpTransport::handle_condemned(int peer) {
  Link& ended = link(peer);
  bool is_over = ended.out.write_to(ended.fd.get()) != 0;
  if (!is_over && !ended.out.has_more()) ::shutdown(ended.fd.get(), SHUT_WR);
  ssize_t got = 1;
  while (!is_over && got > 0) {
    got = ::recv(ended.fd.get(), scratch_.data_for_landing(), scratch_.size(), MSG_DONTWAIT);
  }
  is_over |= got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  if (!is_over) return watch(peer);
  close(peer, Link::State::lost);
}

void TcpTransport::close(int peer, Link::State state) {
  Link& ended = link(peer);
  ended.state = state;
  std::erase_if(pulls_, [&](const Pull& pull) { return pull.source == peer; });
  ended.out.abandon(parked_);
  ended.unconnected.clear();
  if (ended.fd) poller_.remove(ended.fd.get());
  ended.fd.close();
}

void TcpTransport::forget_in_child() noexcept {
  is_in_child_ = true;
  for (Link& each : links_) each.fd.close();
  if (greeter_) greeter_->forget();
  listener_.close();
  poller_.forget();
}

}  // namespace tulle
