// mpi_native: the transport's own dense allreduce, MPI_Allreduce under MPI: the rival, in the same clothes.
//
// How it works. A native collective cannot be watched: it has no header to compare and no deadline. So the ranks first
// meet in a *barrier* of ⌈log2 P⌉ rounds of empty messages, which carry the fingerprint and fail in time; then the
// native collective runs, blocking where the call is and nothing else is in flight, else polled. The order of its
// summation is the library's own: the result may differ between libraries and is exempt from the invariants on bits.
//
//   depth     ⌈log2 P⌉ and what the library does
//   messages  ⌈log2 P⌉ per rank and what the library sends, which is not counted

#include <fmt/format.h>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/exchange.hpp"
#include "collectives/patterns/bruck.hpp"

namespace tulle::algorithms {
namespace {

Task<> barrier(Operation& operation) {
  Step step = 0;
  for (int distance = 1; distance < operation.size(); distance *= 2, ++step) {
    const patterns::BruckRound round = patterns::bruck_round(operation.rank(), operation.size(), distance);
    operation.send(round.send_to, step, {}, 0);
    co_await operation.receive(round.receive_from, step);
  }
}

}  // namespace

Task<Outcome> mpi_native(Operation& operation, Payload& payload, const CallOptions& options, AlgorithmState*) {
  NativeAllreduce* const native = operation.native_allreduce();
  if (native == nullptr) {
    throw Error(ErrorKind::unsupported,
                "mpi_native needs a transport with an allreduce of its own: MPI, and a communicator of all its ranks");
  }
  if (options.op.code() == OpCode::user) {
    throw Error(ErrorKind::unsupported, "mpi_native cannot run a user op; use another algorithm");
  }
  Exchange exchange(operation, payload.stream, options);
  const Part mine = exchange.dense_contribution(payload.stream);
  co_await barrier(operation);

  const std::uint64_t count = exchange.dimension();
  Buffer sum = Buffer::allocate(count * size_of(exchange.type()));
  const bool may_block = operation.is_blocking() && operation.is_alone();
  native->start(mine.stream.values_buffer(), sum, count, exchange.type(), options.op.code(), may_block);
  co_await operation.poll_until([native] { return native->test(); });
  co_return exchange.outcome({AnyStream::dense(exchange.type(), count, {0, count}, std::move(sum)), 0});
}

// What is inside is unknown; the best textbook algorithm stands in for it.
double mpi_native_cost(const CostInput& input) { return dense_rabenseifner_cost(input); }

}  // namespace tulle::algorithms
