#include "comm/gather_bytes.hpp"

#include <fmt/format.h>

#include "comm/bruck.hpp"

namespace tulle {

Task<PoolVector<Buffer>> gather_bytes(Operation& operation, Buffer mine, Step first_step) {
  const int rank = operation.rank(), size = operation.size();
  PoolVector<Buffer> known;  // from this rank on
  known.push_back(std::move(mine));
  Step step = first_step;
  for (int distance = 1; distance < size; distance *= 2, ++step) {
    const patterns::BruckRound round = patterns::bruck_round(rank, size, distance);
    Segments handed(known.begin(), known.begin() + round.blocks);
    operation.send(round.send_to, step, std::move(handed), 0);
    const Incoming incoming = co_await operation.receive(round.receive_from, step);
    if (incoming.segments.size() != static_cast<std::size_t>(round.blocks)) {
      throw Error(ErrorKind::bad_message,
                  fmt::format("rank {} sent {} pieces of {}", incoming.from, incoming.segments.size(), round.blocks))
          .with_peer(incoming.from);
    }
    known.insert(known.end(), incoming.segments.begin(), incoming.segments.end());
  }
  PoolVector<Buffer> by_rank(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    by_rank[static_cast<std::size_t>((rank + i) % size)] = std::move(known[static_cast<std::size_t>(i)]);
  }
  co_return by_rank;
}

Task<> meet(Operation& operation, Step first_step) {
  Step step = first_step;
  for (int distance = 1; distance < operation.size(); distance *= 2, ++step) {
    const patterns::BruckRound round = patterns::bruck_round(operation.rank(), operation.size(), distance);
    operation.send(round.send_to, step, {}, 0);
    co_await operation.receive(round.receive_from, step);
  }
}

}  // namespace tulle
