#include "tulle/collectives/collectives.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <mutex>

#include "collectives/checks.hpp"
#include "collectives/experience.hpp"
#include "collectives/fingerprint.hpp"
#include "collectives/input_classes.hpp"
#include "collectives/learning.hpp"
#include "collectives/remembered.hpp"
#include "comm/gather_bytes.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle {
namespace {

// A state, or what a channel keeps, for as long as a call uses it: until the call is over, or until its request is
// gone. Who drops a request may drop the state next, and a call on memory of its own goes on.
class StateUse {
 public:
  explicit StateUse(InUse& in_use) : in_use_(&in_use) {
    if (in_use.take()) return;
    throw Error(ErrorKind::bad_input,
                "the state is used by a call that is not over yet; give each call in flight a state of its own");
  }
  StateUse(const StateUse&) = delete;
  StateUse& operator=(const StateUse&) = delete;

  void end() {
    const std::lock_guard lock(mutex_);
    if (in_use_ != nullptr) std::exchange(in_use_, nullptr)->leave();
  }
  /// Calls `work()`, unless the use has ended.
  template <class Work>
  void while_used(Work work) {
    const std::lock_guard lock(mutex_);
    if (in_use_ != nullptr) work();
  }

 private:
  std::mutex mutex_;
  InUse* in_use_;
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
  void while_used(Work work) {
    if (use_) use_->while_used(work);
  }

 private:
  std::shared_ptr<StateUse> use_;
};

// Where a call learns from, and what it teaches.
struct Memory {
  AlgorithmState* state = nullptr;  ///< the caller's
  InputClasses* classes = nullptr;  ///< else those of the channel

  std::shared_ptr<StateUse> use() const {
    if (state == nullptr && classes == nullptr) return nullptr;
    return std::allocate_shared<StateUse>(PoolAllocator<StateUse>(),
                                          state != nullptr ? state->in_use : classes->in_use);
  }
};

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
  OperationKind kind;
  Shape shape;
  CostInput cost;  ///< of the shape: without data
  Data data;
  CallOptions options;
  Memory memory;
  StateUser user;
  const Algorithm* algorithm = nullptr;  ///< null until the ranks agree on their input
  bool by_auto = false;
  bool is_told = false;               ///< the class is what the caller says
  InputClass* input_class = nullptr;  ///< that is assumed
  AlgorithmState* goes_on = nullptr;  ///< for rows that go on from earlier calls, which end before their request does

  AlgorithmState* state() const {
    return memory.classes == nullptr ? memory.state : input_class ? &input_class->state : nullptr;
  }
  bool learns() const { return memory.classes != nullptr || teaches(*algorithm, memory.state); }
  /// How long the call before took on this rank.
  Ticks last_call() const { return state() != nullptr ? to_ticks(state()->experience.last_seconds) : 0; }

  void choose();
  void learn(double seconds, Ticks slowest_last_call, const Outcome& outcome);
};

void Call::choose() {
  CallOptions said = options;
  const bool is_new = input_class != nullptr && !is_told && input_class->state.calls == 0 && shape.dimension > 0;
  if (is_new) said.density = std::min(1.0, input_class->nnz / static_cast<double>(shape.dimension));
  const ChosenRow chosen = choose_row(kind, cost, shape, said, state());
  algorithm = &chosen.row;
  by_auto = chosen.by_auto;
  options = with_lasting_names(options, chosen.row.name);
}

void Call::learn(double seconds, Ticks slowest_last_call, const Outcome& outcome) {
  const Lesson lesson{*algorithm, by_auto, options, cost, seconds, slowest_last_call};
  if (memory.classes != nullptr) {
    memory.classes->learn(input_class, is_told, lesson, outcome);
  } else {
    tulle::learn(*memory.state, lesson, outcome);
  }
}

// ---------------------------------------------------------------- the class of the input

// What each rank says before the row is chosen.
struct Voice {
  double nnz;
  double seconds;        ///< that the agreement before took on this rank
  std::uint64_t digest;  ///< of what the rank has learned
};

// Behind all steps that a row can reach before its first message has come.
constexpr Step kFirstStepOfAgreement = 0xff00;

// The mean of what the ranks bring is the same on all, and so is what follows from it.
Task<> agree_on_class(Operation& operation, Call& call) {
  InputClasses& classes = *call.memory.classes;
  const Voice mine{static_cast<double>(call.data.payload.stream.nnz()), classes.my_agreement_seconds, classes.digest()};
  const double start = operation.seconds();
  Task<PoolVector<Buffer>> gathering =
      gather_bytes(operation, Buffer::copy_of(std::as_bytes(std::span(&mine, 1))), kFirstStepOfAgreement);
  const PoolVector<Buffer> voices = co_await gathering;
  classes.my_agreement_seconds = operation.seconds() - start;
  double nnz = 0, slowest = 0;
  std::uint64_t digest = 0;
  bool have_learned_alike = true;
  for (std::size_t rank = 0; rank < voices.size(); ++rank) {
    Voice voice{};
    if (voices[rank].size() != sizeof voice) {
      throw Error(ErrorKind::bad_message, fmt::format("rank {} says nothing of its input", rank))
          .with_peer(static_cast<int>(rank));
    }
    std::memcpy(&voice, voices[rank].data(), sizeof voice);
    nnz += voice.nnz / static_cast<double>(voices.size());
    slowest = std::max(slowest, voice.seconds);
    have_learned_alike &= rank == 0 || voice.digest == digest;
    digest = voice.digest;
  }
  if (!have_learned_alike) classes.forget();
  classes.note_agreement(slowest);
  call.input_class = &classes.of(nnz);
}

// False where the ranks have to agree.
bool find_class(Call& call, int ranks) {
  InputClasses& classes = *call.memory.classes;
  call.is_told = call.options.density.has_value();
  if (call.is_told) {
    call.input_class = &classes.told(*call.options.density);
    return true;
  }
  if (ranks == 1) {
    call.input_class = &classes.of(static_cast<double>(call.data.payload.stream.nnz()));
    return true;
  }
  call.input_class = classes.expected();
  if (call.options.reproducible || !is_left_to_auto(call.kind, call.shape, call.options)) return true;
  return call.input_class != nullptr && !classes.can_afford_agreement(*call.input_class, call.cost);
}

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
  if (call.algorithm == nullptr) {
    Task<> agreeing = agree_on_class(operation, call);
    co_await agreeing;
    call.choose();
  }
  Payload& payload = call.data.payload;
  const ValueType type = payload.stream.type();
  const bool widened = call.algorithm->takes == Takes::stream && type != compute_type(type);
  if (widened) payload.stream = convert(payload.stream, compute_type(type));
  const bool timed = call.learns() && operation.is_timed() && !call.options.reproducible;
  if (timed) operation.set_last_call(call.last_call());
  const double start = operation.seconds();
  Outcome outcome = co_await call.algorithm->run(operation, payload, call.options, call.goes_on);
  KernelReport report;
  if (widened) outcome.stream = convert(outcome.stream, type, &report);
  outcome.overflowed = report.overflowed;
  outcome.algorithm = call.algorithm->name;
  outcome.counts = operation.counts();
  if (call.data.in_place.dimension() > 0) write_in_place(call.data.in_place, outcome.stream, call.options.op);
  if (call.learns()) {
    const double seconds = timed ? operation.seconds() - start : 0;
    call.user.while_used([&] { call.learn(seconds, operation.last_call(), outcome); });
  }
  *result = std::move(outcome);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, Data data, const Shape& shape,
                       const CallOptions& options, Memory memory, Pace pace) {
  if (pace == Pace::blocking) communicator.engine()->require_outside_of_coroutines();
  if (pace == Pace::non_blocking && options.awaited_at_once) pace = Pace::awaited;
  check_options(communicator, shape, options);
  const std::shared_ptr<StateUse> use = memory.use();
  const bool goes_on = shape.takes == Takes::accumulator && memory.state != nullptr;
  Call call{.kind = kind,
            .shape = shape,
            .cost = cost_input(communicator, shape, options, nullptr),
            .data = std::move(data),
            .options = options,
            .memory = memory,
            .user = StateUser(use),
            .goes_on = goes_on ? memory.state : nullptr};
  if (memory.classes == nullptr || find_class(call, communicator.size())) {
    call.choose();
  } else {  // what the caller's names are kept in may go before the choice
    const std::string_view given = options.algorithm;
    const std::string_view lasting = given == kAutoSparse ? kAutoSparse : given == kAutoDense ? kAutoDense : kAuto;
    call.options = with_lasting_names(options, lasting);
  }
  if (call.algorithm != nullptr) require_supported(*call.algorithm, communicator, shape, options);
  const Context& context = *communicator.context();
  const OperationSettings settings{
      .signature = call.algorithm != nullptr
                       ? signature_of(*call.algorithm, shape, call.options, context, memory.state, pace)
                       : signature_of(kind, shape, call.options, context),
      .deadline_seconds = options.deadline_seconds,
      .checksum = options.checksum,
      .is_blocking = pace != Pace::non_blocking,
      .borrows = call.data.borrows() || goes_on};
  const auto result = std::allocate_shared<std::optional<Outcome>>(PoolAllocator<std::optional<Outcome>>());
  auto operation =
      communicator.start(settings, [&](Operation& started) { return run_call(started, std::move(call), result); });
  if (use == nullptr) return {communicator.engine(), std::move(operation), result};
  const auto held = std::allocate_shared<Held>(PoolAllocator<Held>(), result, use);
  return {communicator.engine(), std::move(operation), std::shared_ptr<std::optional<Outcome>>(held, result.get())};
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, AnyStream stream, const CallOptions& options,
                       Memory memory, Pace pace) {
  check_stream(kind, stream);
  const Shape shape = shape_of(stream);
  return start(kind, communicator, Data{{std::move(stream), {}}, {}}, shape, options, memory, pace);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                       const CallOptions& options, AlgorithmState* state, Pace pace) {
  check_accumulator(communicator, accumulator, options);
  return start(kind, communicator, Data{{{}, accumulator}, {}}, shape_of(accumulator),
               with_k(options, accumulator.dimension()), Memory{state}, pace);
}

// The vector is what it is: dense.
Request<Outcome> start_in_place(Communicator& communicator, Accumulator vector, CallOptions options, Memory memory,
                                Pace pace) {
  if (!options.density) options.density = 1;
  const std::uint64_t count = vector.dimension();
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(vector.data()), count * size_of(vector.type()));
  const AnyStream stream = AnyStream::dense(vector.type(), count, {0, count}, Buffer::borrow(bytes));
  return start(OperationKind::allreduce, communicator, Data{{stream, {}}, vector}, shape_of(stream), options, memory,
               pace);
}

// Calls that end in the same order everywhere teach the same on all ranks.
Memory memory_of(const Communicator& communicator, const Shape& shape, AlgorithmState* state) {
  if (state != nullptr) return {state};
  // Of a vector in place, a shape is of an accumulator; what it teaches is of a stream.
  return {nullptr, &history_of(communicator, {Takes::stream, shape.type, shape.dimension})};
}

Outcome run_blocking(OperationKind kind, Communicator& communicator, AnyStream& stream, const CallOptions& options,
                     Memory memory = {}) {
  Outcome outcome = start(kind, communicator, stream, options, memory, Pace::blocking).wait();
  stream = outcome.stream;
  return outcome;
}

}  // namespace

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, AnyStream stream,
                                  const CallOptions& options, AlgorithmState* state) {
  return start(kind, communicator, std::move(stream), options, Memory{state}, Pace::non_blocking);
}

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                                  const CallOptions& options, AlgorithmState* state) {
  return start(kind, communicator, accumulator, options, state, Pace::non_blocking);
}

Outcome allreduce(Communicator& communicator, AnyStream& stream, const CallOptions& options, AlgorithmState* state) {
  return run_blocking(OperationKind::allreduce, communicator, stream, options,
                      memory_of(communicator, shape_of(stream), state));
}
Request<Outcome> iallreduce(Communicator& communicator, AnyStream stream, const CallOptions& options,
                            AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, std::move(stream), options, Memory{state}, Pace::non_blocking);
}
Request<Outcome> start_remembered(Communicator& communicator, AnyStream stream, const CallOptions& options) {
  const Memory memory = memory_of(communicator, shape_of(stream), nullptr);
  return start(OperationKind::allreduce, communicator, std::move(stream), options, memory, Pace::non_blocking);
}

Outcome allreduce_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options,
                           AlgorithmState* state) {
  const Memory memory = memory_of(communicator, shape_of(vector), state);
  return start_in_place(communicator, vector, options, memory, Pace::blocking).wait();
}
Request<Outcome> iallreduce_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options,
                                     AlgorithmState* state) {
  return start_in_place(communicator, vector, options, Memory{state}, Pace::non_blocking);
}
Request<Outcome> start_remembered_in_place(Communicator& communicator, Accumulator vector, const CallOptions& options) {
  const Memory memory = memory_of(communicator, shape_of(vector), nullptr);
  return start_in_place(communicator, vector, options, memory, Pace::non_blocking);
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

#define TULLE_COLLECTIVE(name)                                                                           \
  Outcome name(Communicator& communicator, AnyStream& stream, const CallOptions& options) {              \
    return run_blocking(OperationKind::name, communicator, stream, options);                             \
  }                                                                                                      \
  Request<Outcome> i##name(Communicator& communicator, AnyStream stream, const CallOptions& options) {   \
    return start(OperationKind::name, communicator, std::move(stream), options, {}, Pace::non_blocking); \
  }
TULLE_COLLECTIVE(allgather)
TULLE_COLLECTIVE(reduce_scatter)
TULLE_COLLECTIVE(reduce)
TULLE_COLLECTIVE(broadcast)
#undef TULLE_COLLECTIVE

}  // namespace tulle
