#include "tulle/collectives/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "collectives/checks.hpp"
#include "collectives/experience.hpp"
#include "collectives/fingerprint.hpp"
#include "collectives/learning.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

// A state, for as long as a call uses it: until the call is over, or until its request is gone. Who drops a request may
// drop the state next, and a call on memory of its own goes on.
class StateUse {
 public:
  explicit StateUse(AlgorithmState& state) : state_(&state) {
    if (state.in_use.take()) return;
    throw Error(ErrorKind::bad_input,
                "the state is used by a call that is not over yet; give each call in flight a state of its own");
  }
  StateUse(const StateUse&) = delete;
  StateUse& operator=(const StateUse&) = delete;

  void end() {
    const std::lock_guard lock(mutex_);
    if (state_ != nullptr) std::exchange(state_, nullptr)->in_use.leave();
  }
  /// Calls `work(state)`, unless the use has ended.
  template <class Work>
  void with_state(Work work) {
    const std::lock_guard lock(mutex_);
    if (state_ != nullptr) work(*state_);
  }

 private:
  std::mutex mutex_;
  AlgorithmState* state_;
};

// The call has one of these and its request has another: the use ends with the first that goes.
class StateUser {
 public:
  explicit StateUser(std::shared_ptr<StateUse> use) : use_(std::move(use)) {}
  StateUser(StateUser&&) noexcept = default;
  StateUser& operator=(StateUser&&) = delete;
  ~StateUser() {
    if (use_) use_->end();
  }
  template <class Work>
  void with_state(Work work) {
    if (use_) use_->with_state(work);
  }

 private:
  std::shared_ptr<StateUse> use_;
};

std::shared_ptr<StateUse> use_of(AlgorithmState* state) {
  if (state == nullptr) return nullptr;
  return std::allocate_shared<StateUse>(PoolAllocator<StateUse>(), *state);
}

// Where a call reads its data, and where the result shall be written too.
struct Data {
  Payload payload;
  Accumulator in_place;  ///< dense memory of the caller's; empty: nowhere

  bool borrows() const {
    return !payload.accumulator.is_phantom() && (payload.accumulator.dimension() > 0 || tulle::borrows(payload.stream));
  }
};

// What an operation keeps while it runs.
struct Call {
  const Algorithm& algorithm;
  Data data;
  CallOptions options;
  AlgorithmState* state;  ///< for rows that go on from earlier calls, which end before their request does
  StateUser user;
  bool learns;
  bool by_auto;
  Ticks last_call;  ///< how long the call before took on this rank
  CostInput shape;
};

// What a request of a call with a state holds.
struct Held {
  Held(std::shared_ptr<std::optional<Outcome>> outcome, std::shared_ptr<StateUse> use)
      : result(std::move(outcome)), user(std::move(use)) {}
  std::shared_ptr<std::optional<Outcome>> result;
  StateUser user;
};

void write_in_place(const Accumulator& place, const AnyStream& result, const Op& op) {
  const AnyStream dense = to_dense(result, op);
  const std::span<const std::byte> bytes = dense.values_buffer().bytes();
  std::memcpy(place.data(), bytes.data(), bytes.size());
}

// f16 and bf16 travel and are summed in f32; the result is rounded once, at the end.
Task<> run_call(Operation& operation, Call call, std::shared_ptr<std::optional<Outcome>> result) {
  Payload& payload = call.data.payload;
  const ValueType type = payload.stream.type();
  const bool widened = call.algorithm.takes == Takes::stream && type != compute_type(type);
  if (widened) payload.stream = convert(payload.stream, compute_type(type));
  const bool timed = call.learns && operation.is_timed() && !call.options.reproducible;
  if (timed) operation.set_last_call(call.last_call);
  const double start = operation.seconds();
  Outcome outcome = co_await call.algorithm.run(operation, payload, call.options, call.state);
  KernelReport report;
  if (widened) outcome.stream = convert(outcome.stream, type, &report);
  outcome.overflowed = report.overflowed;
  outcome.algorithm = call.algorithm.name;
  outcome.counts = operation.counts();
  if (call.data.in_place.dimension() > 0) write_in_place(call.data.in_place, outcome.stream, call.options.op);
  if (call.learns) {
    const double seconds = timed ? operation.seconds() - start : 0;
    const Lesson lesson{call.algorithm, call.by_auto, call.options, call.shape, seconds, operation.last_call()};
    call.user.with_state([&](AlgorithmState& state) { learn(state, lesson, outcome); });
  }
  *result = std::move(outcome);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, Data data, const Shape& shape,
                       const CallOptions& given, AlgorithmState* state, Pace pace) {
  if (pace == Pace::blocking) communicator.engine()->require_outside_of_coroutines();
  if (pace == Pace::non_blocking && given.awaited_at_once) pace = Pace::awaited;
  check_options(communicator, shape, given);
  const std::shared_ptr<StateUse> use = use_of(state);
  StateUser user(use);
  const ChosenRow chosen = choose_row(kind, communicator, shape, given, state);
  require_supported(chosen.row, communicator, shape, given);
  const CallOptions options = with_lasting_names(given, chosen.row.name);
  const bool learns = teaches(chosen.row, state), goes_on = shape.takes == Takes::accumulator && state != nullptr;
  CostInput cost;
  if (learns) cost = cost_input(communicator, shape, options, nullptr);
  const Ticks last_call = learns ? to_ticks(state->experience.last_seconds) : 0;
  const OperationSettings settings{
      .signature = signature_of(chosen.row, shape, options, *communicator.context(), state, pace),
      .deadline_seconds = options.deadline_seconds,
      .checksum = options.checksum,
      .is_blocking = pace != Pace::non_blocking,
      .borrows = data.borrows() || goes_on};
  const auto result = std::allocate_shared<std::optional<Outcome>>(PoolAllocator<std::optional<Outcome>>());
  auto operation = communicator.start(settings, [&](Operation& started) {
    return run_call(started,
                    Call{chosen.row, std::move(data), options, goes_on ? state : nullptr, std::move(user), learns,
                         chosen.by_auto, last_call, cost},
                    result);
  });
  if (state == nullptr) return {communicator.engine(), std::move(operation), result};
  const auto held = std::allocate_shared<Held>(PoolAllocator<Held>(), result, use);
  return {communicator.engine(), std::move(operation), std::shared_ptr<std::optional<Outcome>>(held, result.get())};
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, AnyStream stream, const CallOptions& options,
                       AlgorithmState* state, Pace pace) {
  check_stream(kind, stream);
  const Shape shape = shape_of(stream);
  return start(kind, communicator, Data{{std::move(stream), {}}, {}}, shape, options, state, pace);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                       const CallOptions& options, AlgorithmState* state, Pace pace) {
  check_accumulator(communicator, accumulator, options);
  return start(kind, communicator, Data{{{}, accumulator}, {}}, shape_of(accumulator),
               with_k(options, accumulator.dimension()), state, pace);
}

// The vector is what it is: dense.
Request<Outcome> start_in_place(Communicator& communicator, Accumulator vector, CallOptions options,
                                AlgorithmState* state, Pace pace) {
  if (!options.density) options.density = 1;
  const std::uint64_t count = vector.dimension();
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(vector.data()), count * size_of(vector.type()));
  const AnyStream stream = AnyStream::dense(vector.type(), count, {0, count}, Buffer::borrow(bytes));
  return start(OperationKind::allreduce, communicator, Data{{stream, {}}, vector}, shape_of(stream), options, state,
               pace);
}

Outcome run_blocking(OperationKind kind, Communicator& communicator, AnyStream& stream, const CallOptions& options,
                     AlgorithmState* state = nullptr) {
  Outcome outcome = start(kind, communicator, stream, options, state, Pace::blocking).wait();
  stream = outcome.stream;
  return outcome;
}

}  // namespace

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, AnyStream stream,
                                  const CallOptions& options, AlgorithmState* state) {
  return start(kind, communicator, std::move(stream), options, state, Pace::non_blocking);
}

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                                  const CallOptions& options, AlgorithmState* state) {
  return start(kind, communicator, accumulator, options, state, Pace::non_blocking);
}

Outcome allreduce(Communicator& communicator, AnyStream& stream, const CallOptions& options, AlgorithmState* state) {
  // Blocking calls end in the same order everywhere, so what they teach is the same on all ranks.
  if (state == nullptr) state = &history_of(communicator, shape_of(stream));
  return run_blocking(OperationKind::allreduce, communicator, stream, options, state);
}
Request<Outcome> iallreduce(Communicator& communicator, AnyStream stream, const CallOptions& options,
                            AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, std::move(stream), options, state, Pace::non_blocking);
}

Outcome allreduce_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options,
                           AlgorithmState* state) {
  if (state == nullptr) state = &history_of(communicator, shape_of(vector));
  return start_in_place(communicator, vector, options, state, Pace::blocking).wait();
}
Request<Outcome> iallreduce_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options,
                                     AlgorithmState* state) {
  return start_in_place(communicator, vector, options, state, Pace::non_blocking);
}

Outcome allreduce(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                  AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, accumulator, options, state, Pace::blocking).wait();
}
Request<Outcome> iallreduce(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                            AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, accumulator, options, state, Pace::non_blocking);
}
Outcome reduce_scatter(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                       AlgorithmState* state) {
  return start(OperationKind::reduce_scatter, communicator, accumulator, options, state, Pace::blocking).wait();
}
Request<Outcome> ireduce_scatter(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                                 AlgorithmState* state) {
  return start(OperationKind::reduce_scatter, communicator, accumulator, options, state, Pace::non_blocking);
}

#define TULLE_COLLECTIVE(name)                                                                                \
  Outcome name(Communicator& communicator, AnyStream& stream, const CallOptions& options) {                   \
    return run_blocking(OperationKind::name, communicator, stream, options);                                  \
  }                                                                                                           \
  Request<Outcome> i##name(Communicator& communicator, AnyStream stream, const CallOptions& options) {        \
    return start(OperationKind::name, communicator, std::move(stream), options, nullptr, Pace::non_blocking); \
  }
TULLE_COLLECTIVE(allgather)
TULLE_COLLECTIVE(reduce_scatter)
TULLE_COLLECTIVE(reduce)
TULLE_COLLECTIVE(broadcast)
#undef TULLE_COLLECTIVE

}  // namespace tulle
