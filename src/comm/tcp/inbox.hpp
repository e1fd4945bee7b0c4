// Messages on their way in on one connection.
//
// How it works: the stream is a sequence of *stages*, each a list of places to be filled: the prefix, the head, the
// addresses, the small segments, the large ones, the trailer. A read fills what is left of the stage and, behind it, a
// scratch area; what ended up there is then copied to the places of the stages that follow. So a large segment is
// received where it is wanted, and many small messages take one read. Bytes are added to the checksum while they are in
// the cache.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "comm/tcp/frame.hpp"
#include "tulle/comm/message.hpp"

namespace tulle {

/// A message whose segments are still to be read from the sender's memory.
struct PullOrder {
  struct Piece {
    std::byte* to = nullptr;
    std::uint64_t from = 0;
    std::uint64_t bytes = 0;
  };
  Message message;
  std::uint64_t number = 0;
  PoolVector<Piece> pieces = {};
};

/// Who is told what an inbox has read.
class InboxOwner {
 public:
  virtual Buffer landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived,
                             std::size_t segment, std::uint64_t bytes) = 0;
  virtual void take_message(int source, Message message) = 0;
  virtual void take_pull_order(int source, PullOrder order) = 0;
  virtual void take_pulled(int source, std::uint64_t number) = 0;
  virtual void take_goodbye(int source) = 0;

 protected:
  ~InboxOwner() = default;
};

class Inbox {
 public:
  struct Settings {
    FrameLimits limits;
    std::uint64_t most_message_bytes;
  };
  /// `settings` outlive the inbox.
  Inbox(int source, const Settings& settings);
  Inbox(const Inbox&) = delete;  // its places point into itself
  Inbox& operator=(const Inbox&) = delete;

  enum class State {
    dry,   ///< the socket has nothing more for now
    more,  ///< it may have
    closed,
    failed,  ///< errno says why
  };
  /// One read. Tells `owner` what it completed. Throws bad_message where the bytes are no frames.
  State read_from(int fd, std::span<std::byte> scratch, InboxOwner& owner);
  /// How many bytes were read so far.
  std::uint64_t bytes_read() const { return bytes_read_; }
  /// True where a frame has begun and is not whole.
  bool is_inside_frame() const { return stage_ != Stage::prefix || place_left() != kFramePrefixBytes; }

 private:
  enum class Stage { prefix, head, addresses, small, large, trailer };

  void aim(Stage stage);
  void add_place(std::byte* to, std::size_t bytes);
  std::size_t place_left() const { return next_place_ < places_.size() ? places_[next_place_].iov_len : 0; }
  std::size_t fill(std::span<const std::byte> bytes);
  void advance(std::size_t bytes);
  void finish_stages(InboxOwner& owner);

  void open_prefix(InboxOwner& owner);
  void open_head();
  void open_addresses();
  void place_large_segments(InboxOwner& owner);
  Buffer place_for(InboxOwner& owner, std::size_t segment, std::uint64_t bytes) const;
  void end_segments(InboxOwner& owner);
  void finish_message(InboxOwner& owner);

  int source_;
  const Settings* settings_;
  std::uint64_t bytes_read_ = 0;
  Stage stage_ = Stage::prefix;
  std::array<std::byte, kFramePrefixBytes> prefix_bytes_ = {};
  PoolVector<iovec> places_;
  std::size_t next_place_ = 0;

  // Of the message that is being read.
  FramePrefix prefix_;
  Message message_;
  PoolVector<std::uint64_t> lengths_;
  PoolVector<std::uint64_t> addresses_;
  Buffer envelope_;  ///< small segments are slices of it
  PoolVector<PullOrder::Piece> pulls_;
  std::uint32_t checksum_ = 0;  ///< of what has arrived behind the head
  std::array<std::byte, kFrameTrailerBytes> trailer_bytes_ = {};
};

}  // namespace tulle
