// The beginning and the end of the transport on TCP: ranks meet, connect, and take leave.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/memory.hpp"
#include "base/require_deadline.hpp"
#include "comm/checksums.hpp"
#include "comm/tcp/interfaces.hpp"
#include "comm/tcp/missing_ranks.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle {
namespace {

std::string or_variable(const std::string& option, const char* variable) {
  const char* const value = std::getenv(variable);
  return option.empty() && value != nullptr ? value : option;
}

// Never freed: a peer may read them at any time, and would take what is there then for the message.
void keep_for_ever(PoolVector<Message> messages) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<PoolVector<Message>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(messages));
}

const TcpOptions& validated(const TcpOptions& options) {
  if (options.detach_bytes < 1 || options.pull_bytes < options.detach_bytes || options.pull_chunk_bytes < 1) {
    throw Error(ErrorKind::bad_input,
                "TcpOptions: detach_bytes and pull_chunk_bytes must be 1 or more, pull_bytes at least detach_bytes");
  }
  require_deadline(options.deadline_seconds, "TcpOptions: the deadline");
  require_deadline(options.silence_seconds, "TcpOptions: silence_seconds");
  if (!(options.farewell_seconds >= 0)) {
    throw Error(ErrorKind::bad_input,
                fmt::format("TcpOptions: farewell_seconds is {}; it must be 0 or more", options.farewell_seconds));
  }
  return options;
}

bool has_checksums(const TcpOptions& options) {
  return options.checksum ? *options.checksum : checksums_of_environment() != Checksums::off;
}

}  // namespace

TcpTransport::TcpTransport(Rendezvous& rendezvous, const TcpOptions& options)
    : options_(validated(options)),
      has_checksums_(has_checksums(options)),
      token_(random_token()),
      settings_{{options.detach_bytes, options.pull_bytes},
                options.most_message_bytes != 0 ? options.most_message_bytes : machine_memory_bytes()},
      fork_watch_(*this) {
  Greeter::Job job = meet(rendezvous);
  {
    const std::lock_guard lock(mutex_);
    placement_ = place_ranks(job.cards);
    for (int peer = 0; peer < rendezvous.size(); ++peer) links_.emplace_back(peer, settings_, has_checksums_);
    greeter_.emplace(std::move(job), poller_, options_, static_cast<GreeterOwner&>(*this));
    if (size() > 1) greeter_->open_door(std::move(listener_));
  }
  if (size() <= options_.lazy_above) connect_all(rendezvous);
}

Greeter::Job TcpTransport::meet(Rendezvous& rendezvous) {
  Card card{.detach_bytes = options_.detach_bytes,
            .pull_bytes = options_.pull_bytes,
            .cores = std::max(1u, std::thread::hardware_concurrency()),
            .has_profile = !or_variable("", kProfileVariable).empty(),
            .host = host_identity(),
            .token = token_,
            .probe = {getpid(), reinterpret_cast<std::uintptr_t>(token_.data())}};
  if (rendezvous.size() > 1) {
    const Offer offer = offer_addresses(or_variable(options_.interface, "TULLE_INTERFACE"), rendezvous.meeting_host(),
                                        Deadline(options_.deadline_seconds));
    const std::string ports = or_variable(options_.ports, "TULLE_PORTS");
    listener_ = listen_at(offer.listen, ports.empty() ? PortRange() : parse_port_range(ports, "TULLE_PORTS"));
    card.addresses = offer.addresses;
    const std::uint16_t port = address_of_this_end(listener_.get()).port();
    for (SocketAddress& address : card.addresses) address.set_port(port);
  }
  const std::vector<std::string> cards = rendezvous.allgather(encode_card(card));
  rank_ = rendezvous.rank();  // which a newcomer learns by the rendezvous
  Greeter::Job job{.rank = rank_, .cards = decode_cards(cards, rank_)};
  for (const Card& theirs : job.cards) {
    const bool may_try = options_.host_reads == HostReads::where_allowed && theirs.host == card.host;
    job.can_pull.push_back(may_try && can_read(theirs.probe, theirs.token));
  }
  return job;
}

// ---------------------------------------------------------------- connecting

// Each rank calls the lower ones and is called by the higher ones.
void TcpTransport::connect_all(const Rendezvous& rendezvous) {
  for (int peer = 0; peer < rank_; ++peer) greeter_->call(peer);
  const Deadline deadline(options_.deadline_seconds);
  for (std::vector<int> missing = unconnected_ranks(); !missing.empty(); missing = unconnected_ranks()) {
    if (deadline.has_passed()) {
      throw missing_ranks_error(missing, "connect", options_.deadline_seconds, greeter_->refusals()).at_rank(rank_);
    }
    rendezvous.require_all_there();
    epoll_event event;
    poller_.look({&event, 1}, deadline.milliseconds_left(100));
    const std::lock_guard lock(mutex_);
    handle_events();
    greeter_->check_times();
    if (failures_.empty()) continue;
    throw failure_while_connecting();
  }
  const std::lock_guard lock(mutex_);
  greeter_->close_door();
}

// A peer that fails may have waited for somebody in vain: that one is the cause, and is named too.
Error TcpTransport::failure_while_connecting() const {
  const auto& [peer, kind, reason] = failures_.front();
  const std::vector<int> missing = unconnected_ranks();
  const std::string others = missing.empty() ? "" : fmt::format("; not connected yet: {}", name_ranks(missing));
  return Error(kind, fmt::format("rank {} failed while connecting: {}{}", peer, reason, others))
      .with_peer(peer)
      .at_rank(rank_);
}

std::vector<int> TcpTransport::unconnected_ranks() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && link(peer).state == Link::State::absent) ranks.push_back(peer);
  }
  return ranks;
}

void TcpTransport::take_connection(int peer, Fd fd, bool can_pull) {
  Link& opened = link(peer);
  if (opened.state != Link::State::absent) return;
  poller_.add(fd.get(), static_cast<Poller::Key>(peer), EPOLLIN);
  opened.fd = std::move(fd);
  opened.state = Link::State::open;
  opened.can_pull = can_pull;
  for (Message& message : opened.unconnected) opened.out.put(std::move(message), can_pull);
  opened.unconnected.clear();
  if (opened.out.has_more()) write(peer);
}

void TcpTransport::take_failure(int peer, const std::string& reason) { note_failure(peer, reason); }

// ---------------------------------------------------------------- taking leave

TcpTransport::~TcpTransport() {
  if (is_in_child_) return;
  const std::lock_guard lock(mutex_);
  is_leaving_ = true;
  try {
    say_goodbye();
  } catch (const std::exception&) {  // no memory: the others see that the connection ends without a goodbye
  }
  for (Link& each : links_) close_quietly(each);
  try {
    PoolVector<Message> unpulled = std::move(parked_);
    for (Link& each : links_) each.out.abandon(unpulled);
    if (!unpulled.empty()) keep_for_ever(std::move(unpulled));
  } catch (const std::bad_alloc&) {
  }
}

// Nobody will look at these messages any more, so their senders need not keep them.
void TcpTransport::release_pulls() {
  for (const Pull& pull : std::exchange(pulls_, {})) {
    link(pull.source).out.put_pulled(pull.order.number);
    write(pull.source);
  }
}

// Until everything has left, but not longer than the farewell may take.
void TcpTransport::say_goodbye() {
  release_pulls();
  for (int peer = 0; peer < size(); ++peer) {
    if (!is_connected(peer)) continue;
    // Who leaves because of an error that a third rank told may be faster than that rank's words.
    if (last_poison_) link(peer).out.put({last_poison_->head, last_poison_->segments, nullptr, 0}, false);
    link(peer).out.put_goodbye();
    write(peer);
  }
  const Deadline deadline(options_.farewell_seconds);
  while (has_unsent() && !deadline.has_passed()) {
    report_failures();
    epoll_event event;
    poller_.look({&event, 1}, deadline.milliseconds_left(20));
    try {
      handle_events();
    } catch (const std::exception&) {
      return;  // there is nobody to tell
    }
  }
}

bool TcpTransport::has_unsent() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& each) {
    const bool is_sending = (each.state == Link::State::open && (each.out.has_more() || each.out.has_unpulled())) ||
                            (each.state == Link::State::condemned && each.out.has_more());
    return is_sending || (each.state == Link::State::absent && !each.unconnected.empty());
  });
}

// A socket that is closed with bytes unread is reset, and what was sent on it last may then be lost on the way.
void TcpTransport::close_quietly(Link& ended) {
  if (!ended.fd) return;
  ::shutdown(ended.fd.get(), SHUT_WR);
  char bytes[4096];
  while (::recv(ended.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
  }
  ended.fd.close();
}

}  // namespace tulle
