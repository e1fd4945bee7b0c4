#include "tune/message_probe.hpp"

#include <algorithm>

#include "tulle/codec/frame.hpp"

namespace tulle {
namespace {

// Many small messages, so that the clock's grain does not show; two large ones.
int messages_in_a_row(std::uint64_t bytes) {
  return static_cast<int>(std::clamp<std::uint64_t>((std::uint64_t{256} << 10) / bytes, 2, 32));
}

std::vector<std::uint64_t> ladder(std::uint64_t largest) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = kSmallestMessageBytes; bytes <= largest; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

Buffer filled(std::uint64_t bytes) {
  Buffer array = Buffer::allocate(bytes);
  std::fill_n(array.mutable_data(), bytes, std::byte{1});
  return array;
}

}  // namespace

namespace {

// Rings of two are pairs, and nodes of one rank crowd nobody.
void add_phases(std::vector<MessagePhase>& phases, const std::string& prefix, const PeerTable& rings,
                const PeerTable& pairs) {
  phases.push_back({"alone_" + prefix, first_pair(pairs), true});
  phases.push_back({prefix, rings});
  if (rings != pairs) phases.push_back({prefix + "exchange_", pairs});
}

}  // namespace

std::vector<MessagePhase> message_phases(std::span<const int> nodes) {
  const auto rings = [&](PeerScope scope) { return ring_peers(nodes, scope); };
  const auto pairs = [&](PeerScope scope) { return pair_peers(nodes, scope); };
  std::vector<MessagePhase> phases;
  add_phases(phases, "node_", rings(PeerScope::inside_node), pairs(PeerScope::inside_node));
  add_phases(phases, "", rings(PeerScope::leaders_of_nodes), pairs(PeerScope::leaders_of_nodes));
  if (rings(PeerScope::between_nodes) != rings(PeerScope::leaders_of_nodes)) {
    phases.push_back({"crowded_", rings(PeerScope::between_nodes)});
  }
  std::erase_if(phases, [](const MessagePhase& phase) {
    return std::ranges::none_of(phase.peers, [](const auto& peers) { return peers.has_value(); });
  });
  return phases;
}

MessageProbe::MessageProbe(Lockstep& lockstep, std::uint64_t largest_bytes)
    : lockstep_(lockstep), sizes_(ladder(largest_bytes)), head_(filled(kFrameHeadBytes)) {}

// A frame's head and one array, as rows send.
void MessageProbe::send(int to, Step step, const Buffer& array) {
  Segments segments;
  segments.push_back(head_);
  segments.push_back(array);
  lockstep_.operation().send(to, step, std::move(segments), array.size());
}

// The first message is not timed: until it is there a peer may still be on its way out of the barrier.
Task<double> MessageProbe::shift_seconds(Peers peers, std::uint64_t bytes, Step first, int count) {
  Operation& operation = lockstep_.operation();
  const Buffer array = filled(bytes);
  double started = 0;
  for (int i = 0; i <= count; ++i) {
    if (i == 1) started = operation.seconds();
    const auto step = static_cast<Step>(first + i);
    send(peers.to, step, array);
    co_await operation.receive(peers.from, step);
  }
  co_return (operation.seconds() - started) / count;
}

Task<double> MessageProbe::ping_pong_seconds(int partner, std::uint64_t bytes, Step first, int count) {
  Operation& operation = lockstep_.operation();
  const Buffer array = filled(bytes);
  double started = 0;
  for (int i = 0; i <= count; ++i) {
    if (i == 1) started = operation.seconds();
    const auto step = static_cast<Step>(first + i);
    if (lockstep_.rank() < partner) send(partner, step, array);
    co_await operation.receive(partner, step);
    if (lockstep_.rank() > partner) send(partner, step, array);
  }
  co_return (operation.seconds() - started) / (2 * count);
}

Task<std::optional<LineFit>> MessageProbe::climb(const MessagePhase& phase) {
  const std::optional<Peers> peers = phase.peers[static_cast<std::size_t>(lockstep_.rank())];
  std::vector<TransferTime> times;
  for (const std::uint64_t bytes : sizes_) {
    co_await lockstep_.barrier();
    const int count = messages_in_a_row(bytes);
    const Step first = lockstep_.take_steps(count + 1);
    if (!peers) continue;
    double seconds = 0;
    if (phase.is_alone) {
      seconds = co_await ping_pong_seconds(peers->to, bytes, first, count);
    } else {
      seconds = co_await shift_seconds(*peers, bytes, first, count);
    }
    times.push_back({static_cast<double>(bytes), seconds});
  }
  // The lower rank begins and ends a round trip; the other's last message is still on its way when it looks at the
  // clock.
  if (!peers || (phase.is_alone && lockstep_.rank() > peers->to)) co_return std::nullopt;
  co_return fit_line(times);
}

}  // namespace tulle
