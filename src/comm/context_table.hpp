// The contexts that a rank knows, by id; who is gone; and which ids are free to give.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/alarms.hpp"
#include "tulle/comm/context.hpp"

namespace tulle {

/// Channels of a context that somebody has to itself.
struct ChannelRange {
  std::uint32_t first = 0, end = 0;
  std::string owner;
};

/// Thread-safe. A context leaves the table when the last handle of it goes.
class ContextTable : public std::enable_shared_from_this<ContextTable> {
 public:
  explicit ContextTable(int world_rank) : world_rank_(static_cast<std::uint32_t>(world_rank)) {}

  /// An id of this rank's that no context has or will have until it is given back. Throws unsupported where 65,535 are
  /// in use.
  ContextId reserve();
  void give_back(ContextId id);

  void add(const std::shared_ptr<Context>& context);
  std::shared_ptr<Context> find(ContextId id) const;
  /// True where the context of that id is no longer here: what arrives for it is late.
  bool is_gone(ContextId id) const;
  std::vector<std::shared_ptr<Context>> all() const;
  /// The same, out of the table, for when nothing will be looked up in it any more.
  PoolMap<ContextId, std::weak_ptr<Context>> take_all() noexcept;
  /// Called by a context that ends.
  void remove(ContextId id) noexcept;

  /// Nothing, and the range is taken; or the range that overlaps it, and nothing has changed.
  std::optional<ChannelRange> take_channels(ContextId id, ChannelRange range);
  /// Those that were taken from `first` on.
  void free_channels(ContextId id, std::uint32_t first);

  /// Of the ports of all contexts; not guarded by this table but by the engine's lock.
  Alarms alarms;
  /// Operations in flight that use memory of the caller's: each may be dropped, where nothing may fail. The engine's
  /// lock guards it, and what follows.
  std::size_t borrowing = 0;
  /// What ports that open later are told of ranks of the job that have ended or are lost.
  PoolMap<int, Error> losses;

 private:
  struct Slot {
    std::uint32_t allocator;
    std::uint16_t slot;
    friend bool operator==(const Slot&, const Slot&) = default;
  };
  struct HashSlot {
    std::size_t operator()(const Slot& place) const {
      return std::hash<std::uint64_t>()(std::uint64_t{place.allocator} << 16 | place.slot);
    }
  };

  mutable std::mutex mutex_;
  std::uint32_t world_rank_;
  std::uint32_t next_slot_ = 1;  // slot 0 of rank 0 is the context of all ranks
  std::vector<ContextId> free_;  // of this rank's, with the generation that is next
  PoolMap<ContextId, std::weak_ptr<Context>> contexts_;
  PoolMap<ContextId, std::vector<ChannelRange>> taken_;
  std::unordered_map<Slot, std::uint16_t, HashSlot> gone_;  // the youngest generation that was here
};

}  // namespace tulle
