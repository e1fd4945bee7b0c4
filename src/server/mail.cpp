#include "server/mail.hpp"

#include <span>
#include <utility>

#include "tulle/base/crc32c.hpp"

namespace tulle::server {

std::uint16_t life_at(double now) {
  const double times[] = {now};
  return static_cast<std::uint16_t>(crc32c(std::as_bytes(std::span(times)))) | 1;
}

namespace {

// Before the port opens, which then hears of those that are gone already.
Communicator told_of_the_gone(Communicator communicator) {
  communicator.set_peer_policy(PeerPolicy::tells);
  return communicator;
}

}  // namespace

Mail::Mail(const Communicator& communicator, std::uint32_t port, std::uint16_t life)
    : communicator_(told_of_the_gone(communicator)),
      port_(communicator_, port),
      life_(life),
      peers_(static_cast<std::size_t>(communicator.size())) {}

std::uint64_t Mail::send(int to, LetterHead head, const Body& body) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  head.sequence = peer.sent++;
  head.life = life_ != 0 ? life_ : peer.life;
  Segments segments = encode_letter(head, body);
  const std::uint64_t bytes = segments.front().size() + body.bytes();
  port_.send(to, std::move(segments));
  return bytes;
}

std::optional<Letter> Mail::take() {
  if (in_order_.empty()) return std::nullopt;
  std::optional<Letter> letter = std::move(in_order_.front());
  in_order_.pop_front();
  return letter;
}

std::optional<Letter> Mail::try_receive() {
  while (in_order_.empty()) {
    std::optional<Datagram> datagram = port_.try_receive();
    if (!datagram) return std::nullopt;
    sort(std::move(*datagram));
  }
  return take();
}

Task<std::optional<Letter>> Mail::receive(double seconds) {
  const double end = now() + seconds;
  while (in_order_.empty()) {
    DatagramPort::ReceiveWithin waiting = port_.receive_within(end - now());
    std::optional<Datagram> datagram = co_await waiting;
    if (!datagram) co_return std::nullopt;
    sort(std::move(*datagram));
  }
  co_return take();
}

// What is no letter comes at once: it has no place in an order.
void Mail::sort(Datagram datagram) {
  if (datagram.failure) {
    in_order_.push_back({.from = datagram.from, .head = {}, .body = {}, .failure = datagram.failure, .is_gone = true});
    return;
  }
  try {
    sort(decode_letter(datagram.from, std::move(datagram.segments)));
  } catch (const Error& error) {
    in_order_.push_back({.from = datagram.from, .head = {}, .body = {}, .failure = error});
  }
}

// A worker knows its own; a server goes by the last one that joined. One that ends before it has heard of any refuses
// them all.
bool Mail::is_of_this_life(const Letter& letter) {
  const bool refuses_all = letter.head.kind == LetterKind::refusal && letter.head.life == 0;
  if (life_ != 0) return letter.head.life == life_ || refuses_all;
  Peer& peer = peers_[static_cast<std::size_t>(letter.from)];
  const bool begins = peer.life == 0 || letter.head.kind == LetterKind::join;
  if (letter.head.life != peer.life && begins) peer = Peer{.life = letter.head.life, .early = {}};
  return letter.head.life == peer.life;
}

// A number that was there before is a letter that came twice.
void Mail::sort(Letter letter) {
  if (!is_of_this_life(letter)) return;
  Peer& peer = peers_[static_cast<std::size_t>(letter.from)];
  const std::uint64_t sequence = letter.head.sequence;
  if (sequence < peer.received) return;
  peer.early.emplace(sequence, std::move(letter));
  for (auto next = peer.early.begin(); next != peer.early.end() && next->first == peer.received; ++peer.received) {
    in_order_.push_back(std::move(next->second));
    next = peer.early.erase(next);
  }
}

}  // namespace tulle::server
