// mpi_native: the transport's own dense allreduce, MPI_Allreduce under MPI: the rival, in the same clothes.
//
// How it works. A native collective cannot be watched: it has no header to compare and no deadline. So the ranks first
// meet in a *barrier* of ⌈log2 P⌉ rounds of empty messages, which carry the fingerprint and fail in time. Then, each
// call in its *turn*, the native collective runs: polled where the call is non-blocking; blocking where it is, once
// nothing else is in flight that a blocked rank would hold up. The order of its summation is the library's own: the
// result may differ between libraries and is exempt from the invariants on bits.
//
//   depth     ⌈log2 P⌉ and what the library does
//   messages  ⌈log2 P⌉ per rank and what the library sends, which is not counted

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/exchange.hpp"
#include "comm/gather_bytes.hpp"

namespace tulle::algorithms {
Task<Outcome> mpi_native(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  NativeAllreduce& native = *operation.native_allreduce();
  const std::uint64_t turn = native.take_turn();
  Exchange exchange(operation, payload.stream, options);
  const Part mine = exchange.dense_contribution(payload.stream);
  co_await meet(operation, 0);
  // Barriers may end in another order here than there; turns are taken in the order of calls, which is the same.
  const bool blocks = operation.is_blocking();
  co_await operation.poll_until([&] { return native.is_turn(turn) && (!blocks || operation.is_alone()); });

  const std::uint64_t count = exchange.dimension();
  Buffer sum = Buffer::allocate(count * size_of(exchange.type()));
  // What is polled for goes on where this call ends early: its request is dropped, or another rank fails. The library
  // then still reads the input, which must not be memory that the caller has taken back.
  const Buffer& values = mine.stream.values_buffer();
  native.start(blocks ? values : values.to_owned(), sum, count, exchange.type(), options.op.code(), blocks);
  native.end_turn();
  co_await operation.poll_until([&] { return native.test(); });
  co_return exchange.outcome({AnyStream::dense(exchange.type(), count, {0, count}, std::move(sum)), 0});
}

// What is inside is unknown; the best textbook algorithm stands in for it.
double mpi_native_cost(const CostInput& input) { return dense_rabenseifner_cost(input); }

}  // namespace tulle::algorithms
