#include "tulle/comm/context.hpp"

#include <algorithm>
#include <span>

#include "comm/context_table.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle {

Context::~Context() {
  if (const auto known = table.lock()) known->remove(id);
}

Channel& Context::channel(std::uint32_t number) {
  const auto found = channels.find(number);
  if (found != channels.end()) return *found->second;
  return *channels.emplace(number, std::make_unique<Channel>(*this, number)).first->second;  // never an empty place
}

// Ranks that number nodes differently mean the same: what counts is who is the first on each member's node.
void Context::set_nodes(PoolVector<int> of_members) {
  nodes = std::move(of_members);
  PoolVector<std::pair<int, int>> first_members;  // of each node, by number
  for (int member = 0; member < static_cast<int>(nodes.size()); ++member) {
    const int node = nodes[static_cast<std::size_t>(member)];
    if (first_members.empty() || first_members.back().first < node) {
      first_members.emplace_back(node, member);
      continue;
    }
    const auto place = std::ranges::lower_bound(first_members, node, {}, &std::pair<int, int>::first);
    if (place->first != node) first_members.insert(place, {node, member});
  }
  node_count = static_cast<int>(first_members.size());
  PoolVector<int> canonical;
  canonical.reserve(nodes.size());
  for (const int node : nodes) {
    canonical.push_back(std::ranges::lower_bound(first_members, node, {}, &std::pair<int, int>::first)->second);
  }
  nodes_crc = crc32c(std::as_bytes(std::span(canonical)));
}

void Context::set_profile(const Profile& constants) {
  profile = constants;
  profile_crc = crc32c(std::as_bytes(std::span(&profile, 1)));
}

// ---------------------------------------------------------------- the table

ContextId ContextTable::reserve() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    const ContextId id = free_.back();
    free_.pop_back();
    return id;
  }
  if (next_slot_ > 0xffff) {
    throw Error(ErrorKind::unsupported,
                "more than 65535 communicators of one rank's making exist at a time, or more than 2^32 have");
  }
  return {world_rank_, static_cast<std::uint16_t>(next_slot_++), 0};
}

void ContextTable::give_back(ContextId id) {
  const std::lock_guard lock(mutex_);
  free_.push_back(id);
}

void ContextTable::add(const std::shared_ptr<Context>& context) {
  const std::lock_guard lock(mutex_);
  contexts_.emplace(context->id, context);
}

std::shared_ptr<Context> ContextTable::find(ContextId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second.lock();
}

bool ContextTable::is_gone(ContextId id) const {
  const std::lock_guard lock(mutex_);
  const auto youngest = gone_.find({id.allocator, id.slot});
  return youngest != gone_.end() && id.generation <= youngest->second;
}

std::vector<std::shared_ptr<Context>> ContextTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Context>> all;
  for (const auto& [id, context] : contexts_) {
    if (auto living = context.lock()) all.push_back(std::move(living));
  }
  return all;
}

PoolMap<ContextId, std::weak_ptr<Context>> ContextTable::take_all() noexcept {
  const std::lock_guard lock(mutex_);
  return std::move(contexts_);
}

std::optional<ChannelRange> ContextTable::take_channels(ContextId id, ChannelRange range) {
  const std::lock_guard lock(mutex_);
  std::vector<ChannelRange>& taken = taken_[id];
  const auto overlaps = [&](const ChannelRange& other) { return other.first < range.end && range.first < other.end; };
  const auto found = std::ranges::find_if(taken, overlaps);
  if (found != taken.end()) return *found;
  taken.push_back(std::move(range));
  return std::nullopt;
}

void ContextTable::free_channels(ContextId id, std::uint32_t first) {
  const std::lock_guard lock(mutex_);
  const auto place = taken_.find(id);
  if (place == taken_.end()) return;
  std::erase_if(place->second, [&](const ChannelRange& range) { return range.first == first; });
  if (place->second.empty()) taken_.erase(place);
}

// Where there is no memory the slot is lost, and what arrives for it late is kept.
//
// A slot whose generations are used up is not used again. Would they begin anew, a member that had one of the first
// could not tell a message of the next from a late one.
void ContextTable::remove(ContextId id) noexcept try {
  const std::lock_guard lock(mutex_);
  contexts_.erase(id);
  const auto [place, is_first] = gone_.try_emplace({id.allocator, id.slot}, id.generation);
  if (!is_first) place->second = std::max(place->second, id.generation);
  constexpr std::uint16_t kLastGeneration = 0xffff;
  if (id.allocator == world_rank_ && id.generation < kLastGeneration)
    free_.push_back({id.allocator, id.slot, static_cast<std::uint16_t>(id.generation + 1)});
} catch (...) {
}

}  // namespace tulle
