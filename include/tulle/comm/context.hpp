// A group of ranks, and the orders in which they count their operations.
//
// A *context* is what a communicator is inside: members, constants, and whether it is broken. A *channel* of it is an
// order of operations of its own. Communicator is the handle of both; nobody else needs to look in here.
//
// Threads: what is fixed when a context is made may be read from anywhere. The rest says who owns it: *the lock* is the
// engine's, *the driver* is the thread that makes progress (see engine.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/profile.hpp"

#pragma GCC visibility push(default)
namespace tulle {

struct AgreementState;
class ContextTable;
class DatagramQueue;
class Operation;
struct Context;

template <class Key, class Value>
using PoolMap =
    std::unordered_map<Key, Value, std::hash<Key>, std::equal_to<Key>, PoolAllocator<std::pair<const Key, Value>>>;

/// What a peer's death means for a context.
enum class PeerPolicy {
  breaks,  ///< operations fail, and so does every later call
  tells,   ///< the same, and the context's datagram ports go on and are told who is gone
};

/// What a layer above keeps with a channel between calls. Touched by blocking calls alone, which come one at a time.
class ChannelMemory {
 public:
  virtual ~ChannelMemory() = default;
};

/// Bytes that count in a total for as long as this lives.
class CountedBytes {
 public:
  CountedBytes(std::shared_ptr<std::atomic<std::uint64_t>> total, std::uint64_t bytes)
      : total_(std::move(total)), bytes_(bytes) {
    total_->fetch_add(bytes_);
  }
  CountedBytes(CountedBytes&&) noexcept = default;
  CountedBytes& operator=(CountedBytes&& other) noexcept {
    std::swap(total_, other.total_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CountedBytes() {
    if (total_) total_->fetch_sub(bytes_);
  }

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> total_;
  std::uint64_t bytes_;
};

/// A message for something that this rank has not started.
struct EarlyMessage {
  MessageHeader header;
  int source;  ///< rank of the job
  Message message;
  CountedBytes bytes;
};
using EarlyMessages = PoolVector<EarlyMessage>;

inline constexpr std::uint64_t kNoSequence = std::numeric_limits<std::uint64_t>::max();

/// Operations that ranks start in the same order. Lives as long as its context.
struct Channel {
  Channel(Context& owner, std::uint32_t its_number) : context(owner), number(its_number) {}

  Context& context;
  const std::uint32_t number;
  std::unique_ptr<ChannelMemory> memory;
  std::uint64_t next_sequence = 0;                             ///< the lock's
  PoolMap<std::uint64_t, std::shared_ptr<Operation>> running;  ///< the driver's, as is what follows: by sequence
  PoolMap<std::uint64_t, EarlyMessages> early;                 ///< for operations from next_sequence on
  std::uint64_t broken_from = kNoSequence;                     ///< the first operation that an error concerns
};

struct Context {
  Context() = default;
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ContextId id;
  std::uint16_t epoch = 0;
  int rank = 0;
  PoolVector<int> world_ranks;    ///< of each member
  PoolVector<int> rank_of_world;  ///< the inverse; -1 for others
  std::weak_ptr<ContextTable> table;

  // Set by the caller while no operation is in flight.
  PoolVector<int> nodes;  ///< of each member; numbers mean nothing but equal or not
  int node_count = 0;
  std::uint32_t nodes_crc = 0, profile_crc = 0;  ///< equal on all members, or operations tell
  Profile profile;
  double default_deadline_seconds = 300;
  PeerPolicy peer_policy = PeerPolicy::breaks;

  std::optional<Error> broken;                                 ///< the lock's
  std::map<std::uint32_t, std::unique_ptr<Channel>> channels;  ///< the lock's
  std::map<std::uint32_t, DatagramQueue*> ports;               ///< the lock's
  PoolMap<std::uint32_t, EarlyMessages> early_datagrams;       ///< the lock's: for ports not yet open
  std::shared_ptr<AgreementState> agreement;                   ///< the driver's: made by agreement_of()

  int size() const { return static_cast<int>(world_ranks.size()); }
  bool has(int world_rank) const { return rank_of_world[static_cast<std::size_t>(world_rank)] >= 0; }
  void set_nodes(PoolVector<int> of_members);
  void set_profile(const Profile& constants);
  /// The channel of that number, made where it is not there yet. REQUIRES: the engine's lock.
  Channel& channel(std::uint32_t number);
};

}  // namespace tulle
#pragma GCC visibility pop
