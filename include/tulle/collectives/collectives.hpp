// The collectives a program calls. Start here.
//
// Every function exists twice: the blocking one, and one that starts with `i` and gives a Request to test, to wait for
// or to co_await. Several may be in flight on a communicator; ranks must start them in the same order, or on channels.
// Streams that own their memory may be dropped once a call has started; memory that a stream borrows may not.
//
// Threads: any thread may call, one at a time on a channel. Starting costs microseconds where there is a progress
// thread, and else what the collective computes before it first waits.
//
// Failure: no rank ever gets a wrong sum. A rank that cannot go on throws tulle::Error and tells the others, which
// throw too; the communicator is broken from then on. docs/errors.md says what each error means.
#pragma once

#include "tulle/collectives/registry.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/comm/request.hpp"
#include "tulle/stream/stream.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Replaces `stream` by the sum (or another op) of all ranks' streams, the same bits on every rank.
/// REQUIRES: equal type, dimension and options on all ranks; the numbers of non-zeros may differ. On an exception
/// `stream` is as it was. `state`, where given, is what auto learns from; else it learns from earlier blocking calls.
Outcome allreduce(Communicator& communicator, AnyStream& stream, const CallOptions& options = {},
                  AlgorithmState* state = nullptr);
/// `state` must outlive the request. Where that is dropped before the end, the call goes on and leaves the state alone.
Request<Outcome> iallreduce(Communicator& communicator, AnyStream stream, const CallOptions& options = {},
                            AlgorithmState* state = nullptr);

/// The same of dense vectors that stay where they are: `values` becomes the sum. Where this throws, it is as it was.
/// The memory of the non-blocking form must be left alone until the request is over; dropping the request before ends
/// the operation and breaks the communicator.
Outcome allreduce_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options = {},
                           AlgorithmState* state = nullptr);
Request<Outcome> iallreduce_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options = {},
                                     AlgorithmState* state = nullptr);
template <class V>
Outcome allreduce(Communicator& communicator, std::span<V> values, const CallOptions& options = {},
                  AlgorithmState* state = nullptr) {
  return allreduce_in_place(communicator, Accumulator(values), options, state);
}
template <class V>
Request<Outcome> iallreduce(Communicator& communicator, std::span<V> values, const CallOptions& options = {},
                            AlgorithmState* state = nullptr) {
  return iallreduce_in_place(communicator, Accumulator(values), options, state);
}

/// Sums about k of the accumulators' values, the largest as far as the row can tell: delivers them, the same bits on
/// every rank, and takes them out. Everything else stays, so that with residual mode `global` nothing is ever lost:
/// the accumulators' sum before is the result plus their sum after. REQUIRES: `options.k` or `options.density`, sum;
/// f32, f64, i32 or i64. On an exception the accumulator is as it was.
/// Rows that go on from earlier calls (oktopk, spardl with b_sag) do so where `state` is given, and start anew else.
Outcome allreduce(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                  AlgorithmState* state = nullptr);
/// `state`, where given, must outlive the request. So must the accumulator's memory: dropping the request before the
/// end gives back what was taken out, ends the operation and breaks the communicator.
Request<Outcome> iallreduce(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                            AlgorithmState* state = nullptr);

/// Options for spardl as its paper's experiments run it: r_sag between two teams. REQUIRES: an even number of ranks.
CallOptions spardl_as_published(CallOptions options = {});

/// Gives every rank the union of all ranks' streams. Where indices occur on several ranks their values are combined by
/// the op, in rank order; streams that lie one after the other are concatenated. Streams may be blocks: then their
/// ranges must cover the dimension by rank, one after the other.
Outcome allgather(Communicator& communicator, AnyStream& stream, const CallOptions& options = {});
Request<Outcome> iallgather(Communicator& communicator, AnyStream stream, const CallOptions& options = {});

/// Rank r gets the r-th of P blocks of the sum: a stream whose range() is that block.
Outcome reduce_scatter(Communicator& communicator, AnyStream& stream, const CallOptions& options = {});
Request<Outcome> ireduce_scatter(Communicator& communicator, AnyStream stream, const CallOptions& options = {});

/// The same of accumulators: rank r gets about k/P values of the r-th block.
Outcome reduce_scatter(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                       AlgorithmState* state = nullptr);
Request<Outcome> ireduce_scatter(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                                 AlgorithmState* state = nullptr);

/// The sum arrives at `options.root`; elsewhere `stream` becomes empty.
Outcome reduce(Communicator& communicator, AnyStream& stream, const CallOptions& options = {});
Request<Outcome> ireduce(Communicator& communicator, AnyStream stream, const CallOptions& options = {});

/// Everyone gets the stream of `options.root`. Elsewhere only the type and dimension of `stream` matter.
Outcome broadcast(Communicator& communicator, AnyStream& stream, const CallOptions& options = {});
Request<Outcome> ibroadcast(Communicator& communicator, AnyStream stream, const CallOptions& options = {});

/// Any kind by its name, for tools that iterate the registry.
Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, AnyStream stream,
                                  const CallOptions& options = {}, AlgorithmState* state = nullptr);

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                                  const CallOptions& options, AlgorithmState* state = nullptr);

/// The r-th of P blocks of [0, dimension): sizes differ by at most one.
Range block_of(std::uint64_t dimension, int ranks, int rank);

}  // namespace tulle
#pragma GCC visibility pop
