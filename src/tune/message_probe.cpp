#include "tune/message_probe.hpp"

#include <algorithm>

#include "tulle/codec/frame.hpp"
#include "tune/pairs.hpp"

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

std::vector<MessagePhase> message_phases(std::span<const int> nodes) {
  const auto inside = pair_ranks(nodes, PairScope::inside_node);
  const auto leaders = pair_ranks(nodes, PairScope::leaders_of_nodes);
  const auto between = pair_ranks(nodes, PairScope::between_nodes);
  std::vector<MessagePhase> phases = {{"alone_node_", first_pair(inside), true},
                                      {"node_", inside},
                                      {"alone_", first_pair(leaders), true},
                                      {"", leaders}};
  if (between != leaders) phases.push_back({"crowded_", between});
  std::erase_if(phases, [](const MessagePhase& phase) {
    return std::ranges::none_of(phase.pairs, [](const auto& partner) { return partner.has_value(); });
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

// The first message is not timed: until it is there the partner may still be on its way out of the barrier.
Task<double> MessageProbe::exchange_seconds(int partner, std::uint64_t bytes, Step first, int count) {
  Operation& operation = lockstep_.operation();
  const Buffer array = filled(bytes);
  double started = 0;
  for (int i = 0; i <= count; ++i) {
    if (i == 1) started = operation.seconds();
    const auto step = static_cast<Step>(first + i);
    send(partner, step, array);
    co_await operation.receive(partner, step);
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
  const std::optional<int> partner = phase.pairs[static_cast<std::size_t>(lockstep_.rank())];
  std::vector<TransferTime> times;
  for (const std::uint64_t bytes : sizes_) {
    co_await lockstep_.barrier();
    const int count = messages_in_a_row(bytes);
    const Step first = lockstep_.take_steps(count + 1);
    if (!partner) continue;
    double seconds = 0;
    if (phase.is_alone) {
      seconds = co_await ping_pong_seconds(*partner, bytes, first, count);
    } else {
      seconds = co_await exchange_seconds(*partner, bytes, first, count);
    }
    times.push_back({static_cast<double>(bytes), seconds});
  }
  // The lower rank begins and ends a round trip; the other's last message is still on its way when it looks at the
  // clock.
  if (!partner || (phase.is_alone && lockstep_.rank() > *partner)) co_return std::nullopt;
  co_return fit_line(times);
}

}  // namespace tulle
