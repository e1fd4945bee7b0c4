// Messages on their way out on one connection.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>

#include "comm/tcp/frame.hpp"
#include "tulle/comm/message.hpp"

namespace tulle {

/// Frames leave in the order in which they were put, except that `pulled` overtakes messages that have not begun: it
/// frees memory, and must not wait behind a bulk. A message is kept until it is written or, where segments of it are
/// pulled, until they have been. Where segments have a checksum, it is made of what the socket is offered next, so that
/// the kernel finds those bytes in the cache.
class Outbox {
 public:
  Outbox(const FrameLimits& limits, bool has_checksums) : limits_(&limits), has_checksums_(has_checksums) {}

  /// `may_pull`: the receiver can read this process's memory.
  void put(Message message, bool may_pull);
  void put_pulled(std::uint64_t number);
  void put_goodbye();

  /// 0 where everything or as much as the socket takes now was written, else the error.
  int write_to(int fd);
  bool has_more() const { return !waiting_.empty(); }
  /// Written messages whose segments have not been pulled yet.
  bool has_unpulled() const { return !unpulled_.empty(); }
  /// Frees message `number`. False where there is none that waits for it.
  bool take_pulled(std::uint64_t number);

  /// Forgets what waits; nobody will ask for it. Messages whose segments the peer may be reading are given to `parked`,
  /// without their tickets.
  void abandon(PoolVector<Message>& parked);

 private:
  // A frame. Its pieces point into itself, so it stays where it is.
  struct Departure {
    std::array<std::byte, kFramePrefixBytes> prefix;
    std::uint64_t number = 0;
    Message message = {};
    PoolVector<std::uint64_t> addresses = {};
    PoolVector<iovec> pieces = {};
    std::size_t next_piece = 0;

    // Of addresses and segments, and how far it has come: all pieces before `summed_piece`, and that up to an address.
    std::uint32_t checksum = 0;
    std::size_t summed_piece = 0;
    const std::byte* summed_to = nullptr;
    std::array<std::byte, kFrameTrailerBytes> trailer = {};

    void add_piece(const void* data, std::size_t bytes);
    void sum(std::size_t piece, std::size_t bytes);
    bool has_trailer = false;
    bool has_begun = false;
    bool is_written() const { return next_piece == pieces.size(); }
  };
  using DeparturePointer = std::shared_ptr<Departure>;

  static DeparturePointer depart(const FramePrefix& prefix);
  std::size_t gather(std::span<iovec> pieces);
  void advance(std::size_t bytes);

  const FrameLimits* limits_;
  const bool has_checksums_;
  PoolDeque<DeparturePointer> waiting_;
  PoolVector<DeparturePointer> unpulled_;
  std::uint64_t last_number_ = 0;
};

}  // namespace tulle
