// sparse_allgather: everyone gets everyone's stream. SparCML, section 4.1.
//
// How it works. The streams travel in ⌈log2 P⌉ rounds (Bruck), encoded once and forwarded as they are. Where they are
// blocks of one vector, or lie one after the other by their indices, they are *concatenated*; else they are reduced in
// rank order, so that an index held by several ranks has the op's value. With sum the result is that of an allreduce.
// With a value coding every rank codes its stream and goes on with what it decodes itself, as all others do.
//
//   depth     ⌈log2 P⌉
//   messages  ⌈log2 P⌉ per rank
//   data      k·(P−1) pairs through each port

#include "collectives/algorithms.hpp"
#include "collectives/block_order.hpp"
#include "collectives/cost.hpp"
#include "collectives/gather.hpp"

namespace tulle::algorithms {
namespace {

bool follow_one_another(std::span<const Part> parts) {
  std::uint64_t next = 0;
  for (const Part& part : parts) {
    if (part.stream.is_dense() || part.stream.is_phantom()) return false;
    if (part.stream.nnz() == 0) continue;
    if (part.stream.index_at(0) < next) return false;
    next = part.stream.index_at(part.stream.nnz() - 1) + 1;
  }
  return true;
}

// Narrows every part to the range from its predecessor's last index to its own, so that they are adjacent blocks.
void make_adjacent(std::span<Part> parts) {
  std::uint64_t begin = 0;
  for (Part& part : parts) {
    const bool is_last = &part == &parts.back();
    const std::uint64_t nnz = part.stream.nnz();
    const std::uint64_t end = is_last ? part.stream.dimension() : nnz == 0 ? begin : part.stream.index_at(nnz - 1) + 1;
    part.stream = slice(part.stream, {begin, end});
    begin = end;
  }
}

}  // namespace

Task<Outcome> sparse_allgather(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  Exchange exchange(operation, payload.stream, options);
  Part mine = exchange.with_coded_values(Exchange::contribution(payload.stream), 0);
  PoolVector<Part> parts = co_await gather_parts(exchange, std::move(mine), 0);
  if (are_blocks(parts)) co_return exchange.outcome(exchange.concatenate(parts));
  if (!follow_one_another(parts)) co_return exchange.outcome(exchange.reduce_many(parts));
  make_adjacent(parts);
  co_return exchange.outcome(exchange.concatenate(parts));
}

double sparse_allgather_cost(const CostInput& input) {
  return gather_seconds(input, input.coded_stream_bytes(input.nnz, input.dimension)) +
         merge_seconds(input, input.ranks, input.nnz);
}

}  // namespace tulle::algorithms
