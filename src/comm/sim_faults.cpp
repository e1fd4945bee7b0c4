#include "comm/sim_faults.hpp"

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
