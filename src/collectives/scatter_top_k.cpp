#include "collectives/scatter_top_k.hpp"

#include "collectives/patterns/bags.hpp"
#include "tulle/collectives/collectives.hpp"

namespace tulle {
namespace {

// One rank's blocks on their way: what has been received for each, and what is taken of it when it is sent.
class Scatter {
 public:
  Scatter(Exchange& exchange, Ledger& ledger, const TeamPlace& place, ScatterQuota quota)
      : exchange_(exchange),
        ledger_(ledger),
        place_(place),
        quota_(quota),
        received_(static_cast<std::size_t>(place.team_size)) {}

  void send(const patterns::Bag& bag, Step step) {
    Segments outgoing;
    std::uint64_t data_bytes = 0;
    for (int i = 0; i < bag.blocks; ++i) {
      const int block = (bag.first_sent + i) % place_.team_size;
      AnyStream taken = take(block, quota_.of_sent(place_.team_size, block));
      data_bytes += exchange_.encode(exchange_.with_coded_contribution({std::move(taken), 0, {}}, step), outgoing);
    }
    exchange_.operation().send(place_.team_mate(bag.send_to), step, std::move(outgoing), data_bytes);
  }

  void receive(const patterns::Bag& bag, Incoming message) {
    PoolVector<Range> ranges;
    for (int i = 0; i < bag.blocks; ++i) ranges.push_back(range_of((bag.first_received + i) % place_.team_size));
    PoolVector<Part> parts = exchange_.open(std::move(message), ranges);
    for (int i = 0; i < bag.blocks; ++i) {
      const auto block = static_cast<std::size_t>((bag.first_received + i) % place_.team_size);
      received_[block] = sum(std::move(received_[block]), std::move(parts[static_cast<std::size_t>(i)]));
    }
  }

  AnyStream take_own() { return take(place_.position, quota_.of_kept(place_.team_size, place_.position)); }

 private:
  Range range_of(int block) const { return block_of(exchange_.dimension(), place_.team_size, block); }

  AnyStream take(int block, std::uint64_t k) {
    Part& received = received_[static_cast<std::size_t>(block)];
    AnyStream taken = ledger_.take_top_k(range_of(block), k, &received.stream);
    received = {};
    return taken;
  }

  Part sum(Part earlier, Part later) {
    if (earlier.stream.nnz() == 0) return later;
    const Part operands[] = {std::move(earlier), std::move(later)};
    return exchange_.reduce_many(operands, LayoutChoice::sparse);
  }

  Exchange& exchange_;
  Ledger& ledger_;
  const TeamPlace& place_;
  ScatterQuota quota_;
  PoolVector<Part> received_;  // by block
};

}  // namespace

Task<AnyStream> scatter_top_k(Exchange& exchange, Ledger& ledger, const TeamPlace& place, ScatterQuota quota,
                              Step first_step) {
  Scatter scatter(exchange, ledger, place, quota);
  Step step = first_step;
  for (int distance = patterns::first_bag_distance(place.team_size); distance >= 1; distance /= 2, ++step) {
    const patterns::Bag bag = patterns::bag_at(place.position, place.team_size, distance);
    scatter.send(bag, step);
    Incoming message = co_await exchange.operation().receive(place.team_mate(bag.receive_from), step);
    scatter.receive(bag, std::move(message));
  }
  co_return scatter.take_own();
}

}  // namespace tulle
