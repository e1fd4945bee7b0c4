#include "comm/tcp/outbox.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle {
namespace {

// Pieces in one call. The kernel takes 1024; a message has a handful, and a call that sends a few of them is long.
constexpr std::size_t kMostPieces = 64;

// Bytes in one call where there are checksums. Smaller: more calls. Larger: they leave the cache between the sum and
// the kernel's copy, and the first packet waits for the sum of them all.
constexpr std::size_t kMostSummedBytes = std::size_t{256} << 10;

// Before addresses and segments: the prefix, the head.
constexpr std::size_t kUnsummedPieces = 2;

// Calls in a row on one socket. A receiver that takes as fast as we write must not keep the rank from its other peers.
constexpr int kMostWrites = 16;

}  // namespace

void Outbox::Departure::add_piece(const void* data, std::size_t bytes) {
  if (bytes > 0) pieces.push_back({const_cast<void*>(data), bytes});
}

// The first `bytes` of a piece, as far as they were not added before. A piece begins behind what the socket has taken.
void Outbox::Departure::sum(std::size_t piece, std::size_t bytes) {
  if (!has_trailer || piece < kUnsummedPieces) return;
  if (piece + 1 == pieces.size()) return store_at(std::span<std::byte>(trailer), 0, checksum);
  const auto* const begin = static_cast<const std::byte*>(pieces[piece].iov_base);
  if (piece < summed_piece) return;
  if (piece > summed_piece) summed_to = begin;
  summed_piece = piece;
  if (begin + bytes <= summed_to) return;
  checksum = crc32c({summed_to, begin + bytes}, checksum);
  summed_to = begin + bytes;
}

Outbox::DeparturePointer Outbox::depart(const FramePrefix& prefix) {
  auto departure = std::allocate_shared<Departure>(PoolAllocator<Departure>());
  departure->prefix = encode_frame_prefix(prefix);
  departure->number = prefix.number;
  departure->has_trailer = prefix.has_trailer;
  departure->add_piece(departure->prefix.data(), departure->prefix.size());
  return departure;
}

void Outbox::put(Message message, bool may_pull) {
  const auto way_of = [&](const Buffer& segment) { return limits_->way_of(segment.size(), may_pull); };
  const bool has_segments =
      std::any_of(message.segments.begin(), message.segments.end(), [](const Buffer& each) { return each.size() > 0; });
  FramePrefix prefix{.has_trailer = has_checksums_ && has_segments,
                     .head_bytes = static_cast<std::uint32_t>(message.head.size()),
                     .head_checksum = crc32c(message.head.bytes())};
  const auto is_pulled = [&](const Buffer& segment) { return way_of(segment) == Way::pulled; };
  if (std::any_of(message.segments.begin(), message.segments.end(), is_pulled)) prefix.number = ++last_number_;

  const DeparturePointer departure = depart(prefix);
  departure->message = std::move(message);
  const Message& kept = departure->message;
  for (const Buffer& segment : kept.segments) {
    if (is_pulled(segment)) departure->addresses.push_back(reinterpret_cast<std::uintptr_t>(segment.data()));
  }
  departure->pieces.reserve(kept.segments.size() + 4);
  departure->add_piece(kept.head.data(), kept.head.size());
  departure->add_piece(departure->addresses.data(), 8 * departure->addresses.size());
  for (const Way way : {Way::small, Way::large}) {
    for (const Buffer& segment : kept.segments) {
      if (way_of(segment) == way) departure->add_piece(segment.data(), segment.size());
    }
  }
  if (prefix.has_trailer) departure->add_piece(departure->trailer.data(), departure->trailer.size());
  waiting_.push_back(departure);
}

void Outbox::put_pulled(std::uint64_t number) {
  auto place = waiting_.begin();
  while (place != waiting_.end() && ((*place)->has_begun || (*place)->pieces.size() == 1)) ++place;
  waiting_.insert(place, depart({.kind = FrameKind::pulled, .number = number}));
}

void Outbox::put_goodbye() { waiting_.push_back(depart({.kind = FrameKind::goodbye})); }

std::size_t Outbox::gather(std::span<iovec> pieces) {
  std::size_t count = 0;
  std::size_t room = has_checksums_ ? kMostSummedBytes : std::numeric_limits<std::size_t>::max();
  for (const DeparturePointer& departure : waiting_) {
    for (std::size_t i = departure->next_piece; i < departure->pieces.size(); ++i) {
      if (count == pieces.size() || room == 0) return count;
      const iovec& piece = departure->pieces[i];
      const std::size_t taken = std::min(room, piece.iov_len);
      departure->sum(i, taken);
      pieces[count++] = {piece.iov_base, taken};
      room -= taken;
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
