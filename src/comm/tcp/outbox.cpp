#include "comm/tcp/outbox.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tulle {
namespace {

// Pieces in one call. The kernel takes 1024; a message has a handful, and a call that sends a few of them is long.
constexpr std::size_t kMostPieces = 64;

// Calls in a row on one socket. A receiver that takes as fast as we write must not keep the rank from its other peers.
constexpr int kMostWrites = 16;

}  // namespace

void Outbox::Departure::add_piece(const void* data, std::size_t bytes) {
  if (bytes > 0) pieces.push_back({const_cast<void*>(data), bytes});
}

Outbox::DeparturePointer Outbox::depart(const FramePrefix& prefix) {
  auto departure = std::allocate_shared<Departure>(PoolAllocator<Departure>());
  departure->prefix = encode_frame_prefix(prefix);
  departure->number = prefix.number;
  departure->add_piece(departure->prefix.data(), departure->prefix.size());
  return departure;
}

void Outbox::put(Message message, bool may_pull) {
  const auto way_of = [&](const Buffer& segment) { return limits_->way_of(segment.size(), may_pull); };
  FramePrefix prefix{.head_bytes = static_cast<std::uint32_t>(message.head.size())};
  const auto is_pulled = [&](const Buffer& segment) { return way_of(segment) == Way::pulled; };
  if (std::any_of(message.segments.begin(), message.segments.end(), is_pulled)) prefix.number = ++last_number_;

  const DeparturePointer departure = depart(prefix);
  departure->message = std::move(message);
  const Message& kept = departure->message;
  for (const Buffer& segment : kept.segments) {
    if (is_pulled(segment)) departure->addresses.push_back(reinterpret_cast<std::uintptr_t>(segment.data()));
  }
  departure->pieces.reserve(kept.segments.size() + 3);
  departure->add_piece(kept.head.data(), kept.head.size());
  departure->add_piece(departure->addresses.data(), 8 * departure->addresses.size());
  for (const Way way : {Way::small, Way::large}) {
    for (const Buffer& segment : kept.segments) {
      if (way_of(segment) == way) departure->add_piece(segment.data(), segment.size());
    }
  }
  waiting_.push_back(departure);
}

void Outbox::put_pulled(std::uint64_t number) {
  auto place = waiting_.begin();
  while (place != waiting_.end() && ((*place)->has_begun || (*place)->pieces.size() == 1)) ++place;
  waiting_.insert(place, depart({.kind = FrameKind::pulled, .number = number}));
}

void Outbox::put_goodbye() { waiting_.push_back(depart({.kind = FrameKind::goodbye})); }

std::size_t Outbox::gather(std::span<iovec> pieces) const {
  std::size_t count = 0;
  for (const DeparturePointer& departure : waiting_) {
    for (std::size_t i = departure->next_piece; i < departure->pieces.size(); ++i) {
      if (count == pieces.size()) return count;
      pieces[count++] = departure->pieces[i];
    }
  }
  return count;
}

void Outbox::advance(std::size_t bytes) {
  while (bytes > 0 && !waiting_.empty()) {
    Departure& departure = *waiting_.front();
    departure.has_begun = true;
    iovec& piece = departure.pieces[departure.next_piece];
    const std::size_t taken = std::min(bytes, piece.iov_len);
    piece = {static_cast<std::byte*>(piece.iov_base) + taken, piece.iov_len - taken};
    bytes -= taken;
    if (piece.iov_len == 0) departure.next_piece += 1;
    if (!departure.is_written()) continue;
    if (!departure.addresses.empty()) unpulled_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

int Outbox::write_to(int fd) {
  for (int i = 0; i < kMostWrites && has_more(); ++i) {
    iovec pieces[kMostPieces];
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = gather(pieces);
    const ssize_t written = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) {
      advance(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return 0;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

bool Outbox::take_pulled(std::uint64_t number) {
  return std::erase_if(unpulled_, [&](const DeparturePointer& departure) { return departure->number == number; }) == 1;
}

void Outbox::abandon(PoolVector<Message>& parked) {
  const auto park = [&](const DeparturePointer& departure) {
    departure->message.ticket.reset();
    if (!departure->addresses.empty() && departure->has_begun) parked.push_back(std::move(departure->message));
  };
  for (const DeparturePointer& departure : waiting_) park(departure);
  for (const DeparturePointer& departure : unpulled_) park(departure);
  waiting_.clear();
  unpulled_.clear();
}

}  // namespace tulle
