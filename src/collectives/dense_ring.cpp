// dense_ring: dense allreduce that sends every byte to a neighbour, in a pipeline of segments.
//
// How it works. [0, N) is cut into P *blocks* and every block into *segments*. Reduce-scatter: a segment starts at the
// right-hand neighbour of its owner-to-be, travels round the ring, and every rank adds its own values to it; after
// P − 1 steps rank r holds the sum of block r + 1. Allgather: the sums travel round once more and are received straight
// into the result. A segment is passed on as soon as it is reduced, while the next is still arriving.
//
//   depth     2·(P−1)
//   messages  2·(P−1)·S per rank, S segments a block
//   data      2·(P−1)/P·N values through each port

#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/exchange.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle::algorithms {
namespace {

// Small enough that reducing one segment hides behind receiving the next (at 1 Gbit/s this is 4 ms on the wire), large
// enough that the header and the latency of a message do not show.
constexpr std::uint64_t kSegmentBytes = 512 << 10;
// Steps are numbered with 16 bits.
constexpr std::uint64_t kMaxMessages = 60000;

std::uint64_t segments_of(std::uint64_t block_bytes, std::uint64_t ranks) {
  const std::uint64_t most = std::max<std::uint64_t>(1, kMaxMessages / (2 * ranks));
  return std::clamp<std::uint64_t>(block_bytes / kSegmentBytes, 1, most);
}

class Ring {
 public:
  Ring(Exchange& exchange, const Part& input)
      : exchange_(exchange),
        input_(input),
        segments_(segments_of(exchange.dimension() / ranks() * size_of(exchange.type()), ranks())) {
    if (2 * ranks() > kMaxMessages) throw Error(ErrorKind::unsupported, "dense_ring goes round at most 30000 ranks");
  }

  int segments() const { return static_cast<int>(segments_); }
  int right() const { return (exchange_.rank() + 1) % exchange_.size(); }
  int left() const { return (exchange_.rank() + exchange_.size() - 1) % exchange_.size(); }
  /// The block that this rank sends in `step`: its own first, then what came in the step before.
  int block_sent_in(int step) const { return (exchange_.rank() + 2 * exchange_.size() - step) % exchange_.size(); }
  Step message_number(int step, int segment) const { return static_cast<Step>(step * segments() + segment); }

  Range range(int block, int segment) const {
    const Range whole = block_of(exchange_.dimension(), exchange_.size(), block);
    const Range part = block_of(whole.size(), segments(), segment);
    return {whole.begin + part.begin, whole.begin + part.end};
  }
  Part mine(int block, int segment) const { return {slice(input_.stream, range(block, segment)), 0}; }
  /// What this rank sends first; it speaks for all the non-zeros of its contribution.
  Part first(int segment) const {
    return {mine(exchange_.rank(), segment).stream, segment == 0 ? input_.contributed : 0};
  }

 private:
  std::uint64_t ranks() const { return static_cast<std::uint64_t>(exchange_.size()); }

  Exchange& exchange_;
  const Part& input_;
  std::uint64_t segments_;
};

Task<Part> run_ring(Exchange& exchange, const Part& input) {
  const Ring ring(exchange, input);
  const int last_reduction = exchange.size() - 1;
  const int last_step = 2 * (exchange.size() - 1);
  Buffer result = exchange.make_dense_result(ring.message_number(last_reduction, 0), input.stream.is_phantom());
  PoolVector<Part> blocks(static_cast<std::size_t>(exchange.size() * ring.segments()));

  for (int segment = 0; segment < ring.segments(); ++segment) {
    exchange.send(ring.right(), ring.message_number(0, segment), ring.first(segment));
  }
  for (int step = 1; step <= last_step; ++step) {
    const int block = ring.block_sent_in(step);
    for (int segment = 0; segment < ring.segments(); ++segment) {
      Incoming message = co_await exchange.operation().receive(ring.left(), ring.message_number(step - 1, segment));
      Part part = exchange.open(std::move(message));
      if (step < last_reduction) {
        part = exchange.reduce(std::move(part), ring.mine(block, segment));
      } else if (step == last_reduction) {
        const Part operands[] = {std::move(part), ring.mine(block, segment)};
        part = exchange.reduce_many(operands, LayoutChoice::dense,
                                    exchange.block_of_result(result, ring.range(block, segment)));
      }
      if (step < last_step) exchange.send(ring.right(), ring.message_number(step, segment), part);
      if (step >= last_reduction) {
        const auto place = static_cast<std::size_t>(block) * static_cast<std::size_t>(ring.segments());
        blocks[place + static_cast<std::size_t>(segment)] = std::move(part);
      }
    }
  }
  co_return exchange.concatenate(blocks, LayoutChoice::dense, {.dense = std::move(result)});
}

}  // namespace

Task<Outcome> dense_ring(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  const Part mine = exchange.dense_contribution(payload.stream);
  if (exchange.size() == 1) co_return exchange.outcome(mine);
  Part sum = co_await run_ring(exchange, mine);
  co_return exchange.outcome(std::move(sum));
}

// The slowest of wire, processor and a segment's way hides the others: what one step of the ring takes.
double dense_ring_cost(const CostInput& input) {
  if (input.ranks == 1) return densify_seconds(input);
  const double block = input.dimension / input.ranks, block_bytes = block * input.value_bytes;
  const auto segments = static_cast<double>(
      segments_of(static_cast<std::uint64_t>(block_bytes), static_cast<std::uint64_t>(input.ranks)));
  const double wire = block_bytes * input.profile.beta_seconds_per_byte;
  const auto step_seconds = [&](double computing) {
    return std::max({wire, computing, input.profile.alpha_seconds + (wire + computing) / segments});
  };
  return densify_seconds(input) +
         (input.ranks - 1) * (step_seconds(dense_pair_seconds(input, block)) + step_seconds(0));
}

}  // namespace tulle::algorithms
