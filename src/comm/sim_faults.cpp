#include "comm/sim_faults.hpp"

#include <algorithm>

namespace tulle {

bool SimFaultInjector::strike(Message& message) {
  if (draw(faults_.drop)) {
    count_ += 1;
    return true;
  }
  if (draw(faults_.truncate)) truncate(message);
  if (draw(faults_.corrupt)) corrupt(message);
  return false;
}

const SimDeath* SimFaultInjector::death_of(int rank, std::uint64_t messages) const {
  for (const SimDeath& death : faults_.deaths) {
    if (death.rank == rank && death.after_messages <= messages) return &death;
  }
  return nullptr;
}

bool SimFaultInjector::is_cut(int source, int target, double seconds) {
  for (const SimPartition& partition : faults_.partitions) {
    if (seconds < partition.begin_seconds || seconds >= partition.end_seconds) continue;
    const auto is_inside = [&](int rank) {
      return std::ranges::find(partition.island, rank) != partition.island.end();
    };
    if (is_inside(source) == is_inside(target)) continue;
    count_ += 1;
    return true;
  }
  return false;
}

// Any of the message's buffers that has bytes, chosen by their share of the bytes; the head is one of them.
Buffer& SimFaultInjector::some_buffer(Message& message) {
  std::uint64_t at = random_.below(message.bytes());
  if (at < message.head.size()) return message.head;
  at -= message.head.size();
  for (Buffer& segment : message.segments) {
    if (at < segment.size()) return segment;
    at -= segment.size();
  }
  return message.head;
}

void SimFaultInjector::truncate(Message& message) {
  count_ += 1;
  Buffer& victim = some_buffer(message);
  victim = victim.slice(0, random_.below(victim.size()));
}

void SimFaultInjector::corrupt(Message& message) {
  Buffer& victim = some_buffer(message);
  if (victim.empty() || victim.is_phantom()) return;
  count_ += 1;
  Buffer changed = Buffer::copy_of(victim.bytes());
  changed.mutable_data()[random_.below(victim.size())] ^= static_cast<std::byte>(1u << random_.below(8));
  victim = std::move(changed);
}

}  // namespace tulle
