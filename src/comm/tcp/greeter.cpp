#include "comm/tcp/greeter.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "comm/tcp/interfaces.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr Poller::Key kDoorKey = Greeter::kFirstKey;
constexpr Poller::Key kCallKey = Greeter::kFirstKey << 1;   // plus the peer
constexpr Poller::Key kGuestKey = Greeter::kFirstKey << 2;  // plus a number of the guest's

// For a connection to one address, so that a host that drops what it does not like leaves time for its other addresses.
// Who is connected waits for as long as it takes: the other rank may be computing, and its kernel took the call for it.
constexpr double kSecondsPerAddress = 5;
// A member says its hello as soon as it is connected.
constexpr double kSecondsPerGuest = 5;
// Beyond, the one that has been silent for the longest is turned away. More than ranks that may call at once.
constexpr std::size_t kMostGuests = 4096;

}  // namespace

Greeter::Greeter(Job job, Poller& poller, const TcpOptions& options, GreeterOwner& owner)
    : job_(std::move(job)), poller_(poller), options_(options), owner_(owner) {}

void Greeter::open_door(Fd listener) {
  listener_ = std::move(listener);
  poller_.add(listener_.get(), kDoorKey, EPOLLIN);
}

void Greeter::close_door() {
  if (listener_) poller_.remove(listener_.get());
  listener_.close();
  for (auto& [id, talk] : guests_) poller_.remove(talk.fd.get());
  guests_.clear();
}

void Greeter::forget() noexcept {
  listener_.close();
  for (auto& [peer, call] : calls_) call.talk.fd.close();
  for (auto& [id, talk] : guests_) talk.fd.close();
}

void Greeter::handle(Poller::Key key) {
  if (key == kDoorKey) {
    let_in();
  } else if ((key & kGuestKey) != 0) {
    continue_guest(key);
  } else if (const int peer = static_cast<int>(key - kCallKey); calls_.contains(peer)) {
    continue_call(peer);
  }
}

void Greeter::check_times() {
  std::vector<Poller::Key> silent;
  for (const auto& [id, talk] : guests_) {
    if (talk.deadline.has_passed()) silent.push_back(id);
  }
  for (const Poller::Key id : silent) refuse(id, "it says nothing");
  std::vector<int> unanswered;
  for (const auto& [peer, call] : calls_) {
    if (call.talk.deadline.has_passed()) unanswered.push_back(peer);
  }
  for (const int peer : unanswered) give_up_address(peer, "no answer");
}

// ---------------------------------------------------------------- what is said

Hello Greeter::hello_for(int peer, Hello::Kind kind) const {
  const auto index = static_cast<std::size_t>(peer);
  return {
      .kind = kind, .can_pull = job_.can_pull[index], .from = job_.rank, .to = peer, .token = job_.cards[index].token};
}

Greeter::Heard Greeter::hear(Talk& talk) {
  const ssize_t got = ::recv(talk.fd.get(), talk.bytes.data() + talk.received, kHelloBytes - talk.received, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::part;
  if (got <= 0) return Heard::nothing;
  talk.received += static_cast<std::size_t>(got);
  return talk.received == kHelloBytes ? Heard::whole : Heard::part;
}

// A socket that nothing was written to yet takes a hello whole, or it is of no use.
bool Greeter::say(int fd, const Hello& hello) {
  const auto bytes = encode_hello(hello);
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// Empty where the hello is what a member would say.
std::string Greeter::why_not(const Hello& hello, Hello::Kind least, Hello::Kind most, int from) const {
  if (!equal_in_constant_time(hello.token, job_.cards[static_cast<std::size_t>(job_.rank)].token)) {
    return "its token is wrong";
  }
  if (hello.to != job_.rank || hello.from != from) {
    return fmt::format("it is rank {} and wants rank {}", hello.from, hello.to);
  }
  return hello.kind < least || hello.kind > most ? "it says the wrong thing" : "";
}

void Greeter::hand_over(int peer, Talk talk, bool can_pull) {
  poller_.remove(talk.fd.get());
  set_stream_options(talk.fd.get(), options_.silence_seconds);
  set_buffer_sizes(talk.fd.get(), options_.send_buffer_bytes, options_.receive_buffer_bytes);
  owner_.take_connection(peer, std::move(talk.fd), can_pull);
}

// ---------------------------------------------------------------- calling

void Greeter::call(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  const Card& theirs = job_.cards[index];
  const Card& mine = job_.cards[static_cast<std::size_t>(job_.rank)];
  const auto [place, is_new] =
      calls_.try_emplace(peer, Call{order_addresses(theirs.addresses, mine.addresses, theirs.host == mine.host)});
  if (is_new) try_next_address(peer);
}

void Greeter::try_next_address(int peer) {
  Call& call = calls_.at(peer);
  while (call.next_address < call.addresses.size()) {
    const SocketAddress& address = call.addresses[call.next_address++];
    try {
      call.talk = {begin_connect(address), Deadline(kSecondsPerAddress)};
      call.is_connected = false;
      poller_.add(call.talk.fd.get(), kCallKey + static_cast<Poller::Key>(peer), EPOLLOUT);
      return;
    } catch (const Error& error) {
      call.failures += fmt::format("{}{}", call.failures.empty() ? "" : "; ", error.what());
    }
  }
  const std::string failures = call.failures.empty() ? "it offers no address" : call.failures;
  calls_.erase(peer);
  owner_.take_failure(peer, fmt::format("it cannot be reached: {}", failures));
}

void Greeter::give_up_address(int peer, const std::string& reason) {
  Call& call = calls_.at(peer);
  call.failures +=
      fmt::format("{}{}: {}", call.failures.empty() ? "" : "; ", call.addresses[call.next_address - 1].text(), reason);
  poller_.remove(call.talk.fd.get());
  call.talk.fd.close();
  try_next_address(peer);
}

void Greeter::continue_call(int peer) {
  Call& call = calls_.at(peer);
  const int fd = call.talk.fd.get();
  if (!call.is_connected) {
    if (const int code = pending_error(fd); code != 0) return give_up_address(peer, describe_errno("connect", code));
    if (!say(fd, hello_for(peer, Hello::Kind::call))) return give_up_address(peer, describe_errno("send", errno));
    call.is_connected = true;
    call.talk.deadline = Deadline(std::numeric_limits<double>::infinity());
    set_stream_options(fd, options_.silence_seconds);  // a host that dies meanwhile is noticed
    poller_.change(fd, kCallKey + static_cast<Poller::Key>(peer), EPOLLIN);
    return;
  }
  switch (hear(call.talk)) {
    case Heard::part: return;
    case Heard::whole: return take_answer(peer);
    case Heard::nothing: return give_up_address(peer, "it hung up");
  }
}

void Greeter::take_answer(int peer) {
  Call& call = calls_.at(peer);
  const auto answer = decode_hello(call.talk.bytes);
  const Hello* const hello = std::get_if<Hello>(&answer);
  if (hello == nullptr) return give_up_address(peer, std::get<std::string>(answer));
  const std::string wrong = why_not(*hello, Hello::Kind::welcome, Hello::Kind::later, peer);
  if (!wrong.empty()) return give_up_address(peer, wrong);
  Talk talk = std::move(call.talk);
  calls_.erase(peer);
  if (hello->kind == Hello::Kind::later) {
    poller_.remove(talk.fd.get());  // the peer's own call is on its way, or here already
    return;
  }
  hand_over(peer, std::move(talk), hello->can_pull);
}

// ---------------------------------------------------------------- being called

void Greeter::let_in() {
  constexpr int kMostAtOnce = 64;
  for (int i = 0; i < kMostAtOnce; ++i) {
    Fd fd = accept_from(listener_.get());
    if (!fd) return;
    if (guests_.size() == kMostGuests) refuse(guests_.begin()->first, "too many connect at once");
    const Poller::Key id = kGuestKey + next_guest_++;
    poller_.add(fd.get(), id, EPOLLIN);
    guests_.emplace(id, Talk{std::move(fd), Deadline(kSecondsPerGuest)});
  }
}

void Greeter::refuse(Poller::Key id, const std::string& reason) {
  const Talk talk = std::move(guests_.extract(id).mapped());
  poller_.remove(talk.fd.get());
  if (options_.on_refusal) options_.on_refusal(address_of_other_end(talk.fd.get()).text(), reason);
}

void Greeter::continue_guest(Poller::Key id) {
  const auto guest = guests_.find(id);
  if (guest == guests_.end()) return;
  switch (hear(guest->second)) {
    case Heard::part: return;
    case Heard::whole: return answer_guest(id);
    case Heard::nothing: return refuse(id, "it hung up before it said who it is");
  }
}

void Greeter::answer_guest(Poller::Key id) {
  const auto said = decode_hello(guests_.at(id).bytes);
  const Hello* const hello = std::get_if<Hello>(&said);
  if (hello == nullptr) return refuse(id, std::get<std::string>(said));
  const int peer = hello->from;
  const bool is_rank = peer >= 0 && peer < static_cast<int>(job_.cards.size()) && peer != job_.rank;
  const std::string wrong = is_rank ? why_not(*hello, Hello::Kind::call, Hello::Kind::call, peer) : "it is no rank";
  if (!wrong.empty()) return refuse(id, wrong);

  Talk talk = std::move(guests_.extract(id).mapped());
  const auto own_call = calls_.find(peer);
  const bool prefers_own = own_call != calls_.end() && job_.rank < peer;
  if (owner_.is_connected(peer) || prefers_own) {
    say(talk.fd.get(), hello_for(peer, Hello::Kind::later));
    poller_.remove(talk.fd.get());
    return;
  }
  if (own_call != calls_.end()) {
    poller_.remove(own_call->second.talk.fd.get());
    calls_.erase(own_call);
  }
  if (!say(talk.fd.get(), hello_for(peer, Hello::Kind::welcome))) {
    poller_.remove(talk.fd.get());
    return;
  }
  hand_over(peer, std::move(talk), hello->can_pull);
}

}  // namespace tulle
