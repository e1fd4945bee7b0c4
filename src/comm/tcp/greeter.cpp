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
constexpr Poller::Key kCallKey = Greeter::kFirstKey << 1;  // plus the peer

// For a connection to one address, so that a host that drops what it does not like leaves time for its other addresses.
// Who is connected waits for as long as it takes: the other rank may be computing, and its kernel took the call for it.
constexpr double kSecondsPerAddress = 5;
// A rank at whose door strangers crowd may hang up on a member that is not heard in time. One that has died refuses the
// next call.
constexpr int kMostHangUps = 5;

Entrance::Verdict judge_hello(std::string_view said) {
  using Kind = Entrance::Verdict::Kind;
  if (!may_begin_hello(said)) return {Kind::wrong, "it does not speak Tulle"};
  if (said.size() > kHelloBytes) return {Kind::wrong, "it says more than who it is"};
  return {said.size() == kHelloBytes ? Kind::whole : Kind::part};
}

}  // namespace

Greeter::Greeter(Job job, Poller& poller, const TcpOptions& options, GreeterOwner& owner)
    : job_(std::move(job)), poller_(poller), options_(options), owner_(owner) {}

void Greeter::open_door(Fd listener) {
  std::vector<Fd> listeners;
  listeners.push_back(std::move(listener));
  entrance_.emplace(std::move(listeners), judge_hello, options_.on_refusal);
  poller_.add(entrance_->fd(), kDoorKey, EPOLLIN);
}

void Greeter::close_door() {
  if (entrance_) poller_.remove(entrance_->fd());
  entrance_.reset();
}

void Greeter::forget() noexcept {
  if (entrance_) entrance_->forget();
  for (auto& [peer, call] : calls_) call.talk.fd.close();
}

void Greeter::handle(Poller::Key key) {
  if (key == kDoorKey) {
    open_for_callers();
  } else if (const int peer = static_cast<int>(key - kCallKey); calls_.contains(peer)) {
    continue_call(peer);
  }
}

void Greeter::check_times() {
  if (entrance_ && entrance_->is_busy()) open_for_callers();
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

void Greeter::hand_over(int peer, Fd fd, bool can_pull) {
  set_stream_options(fd.get(), options_.silence_seconds);
  set_buffer_sizes(fd.get(), options_.send_buffer_bytes, options_.receive_buffer_bytes);
  owner_.take_connection(peer, std::move(fd), can_pull);
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
    case Heard::nothing: return call_again(peer);
  }
}

void Greeter::call_again(int peer) {
  Call& call = calls_.at(peer);
  if (call.hang_ups++ == kMostHangUps) return give_up_address(peer, "it hung up");
  poller_.remove(call.talk.fd.get());
  call.talk.fd.close();
  call.next_address -= 1;
  try_next_address(peer);
}

void Greeter::take_answer(int peer) {
  Call& call = calls_.at(peer);
  const auto answer = decode_hello(call.talk.bytes);
  const Hello* const hello = std::get_if<Hello>(&answer);
  if (hello == nullptr) return give_up_address(peer, std::get<std::string>(answer));
  const std::string wrong = why_not(*hello, Hello::Kind::welcome, Hello::Kind::later, peer);
  if (!wrong.empty()) return give_up_address(peer, wrong);
  Fd fd = std::move(call.talk.fd);
  calls_.erase(peer);
  poller_.remove(fd.get());
  if (hello->kind == Hello::Kind::later) return;  // the peer's own call is on its way, or here already
  hand_over(peer, std::move(fd), hello->can_pull);
}

// ---------------------------------------------------------------- being called

void Greeter::open_for_callers() {
  for (Entrance::Arrival& arrival : entrance_->look()) answer(std::move(arrival));
}

void Greeter::answer(Entrance::Arrival arrival) {
  const auto words = std::as_bytes(std::span(arrival.said)).first<kHelloBytes>();
  const auto said = decode_hello(words);
  const Hello* const hello = std::get_if<Hello>(&said);
  if (hello == nullptr) return entrance_->count_refusal(arrival.address, std::get<std::string>(said));
  const int peer = hello->from;
  const bool is_rank = peer >= 0 && peer < static_cast<int>(job_.cards.size()) && peer != job_.rank;
  const std::string wrong = is_rank ? why_not(*hello, Hello::Kind::call, Hello::Kind::call, peer) : "it is no rank";
  if (!wrong.empty()) return entrance_->count_refusal(arrival.address, wrong);

  const auto own_call = calls_.find(peer);
  const bool prefers_own = own_call != calls_.end() && job_.rank < peer;
  if (owner_.is_connected(peer) || prefers_own) {
    say(arrival.fd.get(), hello_for(peer, Hello::Kind::later));
    return;
  }
  if (own_call != calls_.end()) {
    poller_.remove(own_call->second.talk.fd.get());
    calls_.erase(own_call);
  }
  if (!say(arrival.fd.get(), hello_for(peer, Hello::Kind::welcome))) return;
  hand_over(peer, std::move(arrival.fd), hello->can_pull);
}

}  // namespace tulle
