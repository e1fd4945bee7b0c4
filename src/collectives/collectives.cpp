#include "tulle/collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <span>

#include "collectives/exchange.hpp"
#include "collectives/experience.hpp"
#include "collectives/teams.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle {
namespace {

// Until an option or an earlier call says better.
constexpr double kAssumedDensity = 0.01;

std::string_view name_of_algorithm(std::uint8_t number) {
  return number >= 1 && number <= registry().size() ? registry()[number - 1].name : "unknown";
}

// What is reduced, without the data: what all ranks agree on.
struct Shape {
  Takes takes = Takes::stream;
  ValueType type = ValueType::f32;
  std::uint64_t dimension = 0;
};

Shape shape_of(const AnyStream& stream) { return {Takes::stream, stream.type(), stream.dimension()}; }
Shape shape_of(const Accumulator& accumulator) {
  return {Takes::accumulator, accumulator.type(), accumulator.dimension()};
}

// What was added to the union, of what uniform positions would have added.
double overlap_of(CostInput input, double nnz, double result_nnz) {
  input.nnz = nnz;
  input.overlap = 1;
  const double expected = input.union_of(input.ranks) - nnz;
  return expected > 0 ? std::clamp((result_nnz - nnz) / expected, 0.0, 2.0) : 1;
}

CostInput cost_input(const Communicator& communicator, const Shape& shape, const CallOptions& options,
                     const AlgorithmState* state) {
  CostInput input;
  input.ranks = communicator.size();
  input.dimension = static_cast<double>(shape.dimension);
  input.value_bytes = static_cast<double>(size_of(compute_type(shape.type)));
  input.index_bytes = static_cast<double>(index_bytes(shape.dimension));
  input.index_coding = options.index_coding;
  input.coded_value_bytes = coded_value_bytes(options.value_coding, shape.type);
  input.teams = options.teams;
  input.nodes = communicator.node_count();
  input.profile = profile_of_rank(communicator.profile(), input.ranks, input.nodes);
  if (shape.takes == Takes::accumulator) {
    input.nnz = static_cast<double>(options.k);
    input.result_nnz = input.union_of(input.ranks);
    return input;
  }
  input.nnz = kAssumedDensity * input.dimension;
  const bool learned = state != nullptr && state->calls > 0 && !options.reproducible;
  if (options.density) {
    input.nnz = *options.density * input.dimension;
  } else if (learned) {
    input.nnz = state->nnz_per_rank;
  }
  if (learned) input.overlap = overlap_of(input, state->nnz_per_rank, state->result_nnz);
  input.result_nnz = input.union_of(input.ranks);
  return input;
}

bool codes_values(const CallOptions& options) { return options.value_coding.coding != ValueCoding::raw; }

// TULLE_ALGORITHM, for whoever wants to try rows without touching a program: every allreduce of what the row takes gets
// it, whatever the call says.
const Algorithm* forced_row(OperationKind kind, Takes takes) {
  const char* const name = std::getenv("TULLE_ALGORITHM");
  if (name == nullptr || *name == '\0' || name == kAuto || kind != OperationKind::allreduce) return nullptr;
  try {
    const Algorithm& row = find_algorithm(kind, name);
    return row.takes == takes ? &row : nullptr;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("TULLE_ALGORITHM: {}", error.what()));
  }
}

const Algorithm& resolve(OperationKind kind, const Communicator& communicator, const Shape& shape,
                         const CallOptions& options, const AlgorithmState* state) {
  if (options.algorithm != kAuto) return find_algorithm(kind, options.algorithm);
  const RowNeeds needs{.kind = kind, .takes = shape.takes, .coded_values = codes_values(options)};
  static const Experience kNone;
  const bool learns = state != nullptr && !options.reproducible;
  if (const std::uint8_t settled = learns ? settled_on(state->experience) : 0) {
    const Algorithm& row = registry()[settled - 1u];
    if (can_serve(row, needs)) return row;
  }
  return choose(needs, cost_input(communicator, shape, options, state), learns ? state->experience : kNone);
}

// What a row cannot do, told before anything is sent and so without breaking the communicator: it depends on what is
// equal on all ranks alone.
void require_supported(const Algorithm& algorithm, const Communicator& communicator, const Shape& shape,
                       const CallOptions& options) {
  if (algorithm.takes != shape.takes) {
    throw Error(ErrorKind::unsupported, fmt::format("{} takes {}", algorithm.name,
                                                    algorithm.takes == Takes::stream ? "a stream, not an accumulator"
                                                                                     : "an accumulator, not a stream"));
  }
  if (codes_values(options) && !algorithm.codes_values) {
    throw Error(ErrorKind::unsupported, fmt::format("{} sends values as they are and cannot use {}", algorithm.name,
                                                    to_string(options.value_coding)));
  }
  if (algorithm.dense_result && shape.dimension >= kDenseDimensionLimit) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{} makes a dense vector and refuses 2^32 values or more (N = {}); use a sparse algorithm",
                            algorithm.name, shape.dimension));
  }
  if (algorithm.needs != Needs::native_allreduce) return;
  const bool is_world = communicator.context() == communicator.engine()->world();
  if (!is_world || communicator.engine()->transport().native_allreduce() == nullptr) {
    throw Error(ErrorKind::unsupported, fmt::format("{} needs a transport with an allreduce of its own, which MPI is, "
                                                    "and a communicator of all its ranks",
                                                    algorithm.name));
  }
  if (options.op.code() == OpCode::user) {
    throw Error(ErrorKind::unsupported, fmt::format("{} cannot run a user op; use another algorithm", algorithm.name));
  }
}

// Options as every row wants them.
void check_options(const Communicator& communicator, const Shape& shape, const CallOptions& options) {
  options.op.require_defined_on(shape.type);
  if (options.root < 0 || options.root >= communicator.size()) {
    throw Error(ErrorKind::bad_input,
                fmt::format("root {} is not a rank of a communicator of {}", options.root, communicator.size()));
  }
  if (options.density && !(*options.density >= 0 && *options.density <= 1)) {
    throw Error(ErrorKind::bad_input, fmt::format("density {} is not in [0, 1]", *options.density));
  }
  IndexChoice(options.index_coding, communicator.profile());  // knows the name, or throws
  validate(options.value_coding);
  if (codes_values(options) && (is_integer(shape.type) || options.op.code() != OpCode::sum)) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} codes values of sums of floats, not {} by {}", to_string(options.value_coding),
                            to_string(shape.type), options.op.name()));
  }
}

void check_stream(OperationKind kind, const AnyStream& stream) {
  if (stream.range() == Range{0, stream.dimension()} || kind == OperationKind::allgather) return;
  throw Error(ErrorKind::bad_input, fmt::format("{} takes a stream of the whole dimension, not the block [{}, {})",
                                                to_string(kind), stream.range().begin, stream.range().end));
}

// k and density say the same; rows read k.
CallOptions with_k(CallOptions options, std::uint64_t dimension) {
  if (options.k == 0 && !options.density) {
    throw Error(ErrorKind::bad_input, "an accumulator needs k or density: how much to deliver");
  }
  if (options.k == 0) {
    options.k = static_cast<std::uint64_t>(std::llround(*options.density * static_cast<double>(dimension)));
  }
  options.k = std::min(std::max<std::uint64_t>(options.k, 1), dimension);
  return options;
}

void check_accumulator(const Communicator& communicator, const Accumulator& accumulator, const CallOptions& options) {
  if (accumulator.type() != compute_type(accumulator.type())) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is too narrow for an accumulator; use f32", to_string(accumulator.type())));
  }
  if (options.op.code() != OpCode::sum) {
    throw Error(ErrorKind::bad_input, fmt::format("accumulators are summed, not reduced by {}", options.op.name()));
  }
  if (options.teams < 1 || communicator.size() % options.teams != 0) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} teams of equal size cannot be made of {} ranks", options.teams, communicator.size()));
  }
  check_team_gather(options);
}

// What ranks must agree on and no field of the fingerprint has room for.
std::uint32_t hash_of(const CallOptions& options, const Context& context) {
  const auto crc_of = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  const ValueCodec& codec = options.value_coding;
  const std::uint64_t numbers[] = {static_cast<std::uint64_t>(options.root),
                                   options.op.user_op() != nullptr ? crc_of(options.op.name()) : 0u,
                                   crc_of(options.index_coding),
                                   static_cast<std::uint64_t>(codec.coding),
                                   static_cast<std::uint64_t>(codec.bits),
                                   codec.bucket,
                                   static_cast<std::uint64_t>(codec.norm),
                                   std::bit_cast<std::uint64_t>(codec.sparsity),
                                   codec.zero_runs,
                                   options.codes_contributions,
                                   options.k,
                                   static_cast<std::uint64_t>(options.residual),
                                   static_cast<std::uint64_t>(options.teams),
                                   crc_of(options.team_gather),
                                   options.threshold_period,
                                   options.region_period,
                                   context.profile_crc,  // who relays a block decides by it
                                   context.nodes_crc};
  return crc32c(std::as_bytes(std::span(numbers)));
}

CallSignature signature_of(const Algorithm& algorithm, const Shape& shape, const CallOptions& options,
                           const Context& context, bool blocking) {
  CallSignature signature;
  signature.kind = algorithm.kind;
  signature.type = shape.type;
  signature.op = options.op.code();
  signature.algorithm = algorithm_number(algorithm);
  signature.dimension = shape.dimension;
  const bool native_blocks = algorithm.needs == Needs::native_allreduce && blocking;  // MPI tells the two apart
  signature.options_hash = hash_of(options, context) ^ (native_blocks ? 0x85EBCA6Bu : 0u);
  signature.algorithm_name = algorithm.name;
  signature.name_of_algorithm = name_of_algorithm;
  return signature;
}

// What an operation keeps while it runs.
struct Call {
  const Algorithm& algorithm;
  Payload payload;
  CallOptions options;
  AlgorithmState* state;
  bool is_chosen;   ///< by auto
  CostInput shape;  ///< what costs depend on, but for the data
};

bool teaches(const Algorithm& algorithm, const AlgorithmState* state) {
  return state != nullptr && algorithm.kind == OperationKind::allreduce && algorithm.takes == Takes::stream;
}

// The call's k and K, as far as its result tells: a dense one does not tell K, and the overlap of earlier calls stands.
CostInput seen_by(const Call& call, const Outcome& outcome) {
  CostInput seen = call.shape;
  seen.overlap = call.state->calls > 0 ? overlap_of(seen, call.state->nnz_per_rank, call.state->result_nnz) : 1;
  seen.nnz = static_cast<double>(outcome.contributed) / seen.ranks;
  seen.result_nnz = outcome.stream.is_dense() ? seen.union_of(seen.ranks) : static_cast<double>(outcome.stream.nnz());
  seen.overlap = overlap_of(seen, seen.nnz, seen.result_nnz);
  return seen;
}

// Where everyone was empty, that tells of the calls to come only as long as nothing else does. MPI's own row counts no
// contributions.
void learn(const Call& call, const Outcome& outcome, double seconds) {
  AlgorithmState& state = *call.state;
  const bool is_empty = outcome.contributed == 0;
  if (call.algorithm.needs == Needs::native_allreduce || (is_empty && state.nnz_per_rank > 0)) {
    state.experience.last_expected_seconds = 0;
    return;
  }
  const CostInput seen = seen_by(call, outcome);
  state.calls += 1;
  state.nnz_per_rank = seen.nnz;
  state.result_nnz = seen.result_nnz;
  note_call(state.experience, {.last_call = outcome.last_call,
                               .row = algorithm_number(call.algorithm),
                               .expected_seconds = call.algorithm.cost_seconds(seen),
                               .nnz = seen.nnz,
                               .is_chosen = call.is_chosen});
  state.experience.last_seconds = seconds;
}

// f16 and bf16 travel and are summed in f32; the result is rounded once, at the end.
Task<> run_call(Operation& operation, Call call, std::shared_ptr<std::optional<Outcome>> result) {
  const ValueType type = call.payload.stream.type();
  const bool widened = call.algorithm.takes == Takes::stream && type != compute_type(type);
  if (widened) call.payload.stream = convert(call.payload.stream, compute_type(type));
  const bool learns = teaches(call.algorithm, call.state);
  const bool timed = learns && operation.is_timed() && !call.options.reproducible;
  if (timed) operation.set_last_call(to_ticks(call.state->experience.last_seconds));
  const double start = operation.seconds();
  Outcome outcome = co_await call.algorithm.run(operation, call.payload, call.options, call.state);
  KernelReport report;
  if (widened) outcome.stream = convert(outcome.stream, type, &report);
  outcome.overflowed = report.overflowed;
  outcome.algorithm = call.algorithm.name;
  outcome.counts = operation.counts();
  if (learns) learn(call, outcome, timed ? operation.seconds() - start : 0);
  *result = std::move(outcome);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, Payload payload, const Shape& shape,
                       const CallOptions& options, AlgorithmState* state, bool blocking) {
  check_options(communicator, shape, options);
  const Algorithm* const forced = forced_row(kind, shape.takes);
  const Algorithm& algorithm = forced != nullptr ? *forced : resolve(kind, communicator, shape, options, state);
  const bool is_chosen = forced == nullptr && options.algorithm == kAuto;
  require_supported(algorithm, communicator, shape, options);
  const auto result = std::allocate_shared<std::optional<Outcome>>(PoolAllocator<std::optional<Outcome>>());
  const CallSignature signature = signature_of(algorithm, shape, options, *communicator.context(), blocking);
  CostInput cost;
  if (teaches(algorithm, state)) cost = cost_input(communicator, shape, options, nullptr);
  auto operation = communicator.engine()->start(
      communicator.context(), signature, options.deadline_seconds, options.checksum, [&](Operation& started) {
        started.set_blocking(blocking);
        return run_call(started, Call{algorithm, std::move(payload), options, state, is_chosen, cost}, result);
      });
  return {communicator.engine(), std::move(operation), result};
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, AnyStream stream, const CallOptions& options,
                       AlgorithmState* state, bool blocking) {
  check_stream(kind, stream);
  const Shape shape = shape_of(stream);
  return start(kind, communicator, Payload{std::move(stream), {}}, shape, options, state, blocking);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                       const CallOptions& options, AlgorithmState* state, bool blocking) {
  check_accumulator(communicator, accumulator, options);
  return start(kind, communicator, Payload{{}, accumulator}, shape_of(accumulator),
               with_k(options, accumulator.dimension()), state, blocking);
}

Outcome run_blocking(OperationKind kind, Communicator& communicator, AnyStream& stream, const CallOptions& options,
                     AlgorithmState* state = nullptr) {
  Outcome outcome = start(kind, communicator, stream, options, state, true).wait();
  stream = outcome.stream;
  return outcome;
}

}  // namespace

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, AnyStream stream,
                                  const CallOptions& options, AlgorithmState* state) {
  return start(kind, communicator, std::move(stream), options, state, false);
}

Request<Outcome> start_collective(OperationKind kind, Communicator& communicator, Accumulator accumulator,
                                  const CallOptions& options, AlgorithmState* state) {
  return start(kind, communicator, accumulator, options, state, false);
}

Outcome allreduce(Communicator& communicator, AnyStream& stream, const CallOptions& options, AlgorithmState* state) {
  // Blocking calls end in the same order everywhere, so what they teach is the same on all ranks.
  if (state == nullptr) state = &communicator.history(stream.dimension(), stream.type());
  return run_blocking(OperationKind::allreduce, communicator, stream, options, state);
}
Request<Outcome> iallreduce(Communicator& communicator, AnyStream stream, const CallOptions& options,
                            AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, std::move(stream), options, state, false);
}

Outcome allreduce(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                  AlgorithmState* state) {
  if (state == nullptr) state = &communicator.history(accumulator.dimension(), accumulator.type());
  return start(OperationKind::allreduce, communicator, accumulator, options, state, true).wait();
}
Request<Outcome> iallreduce(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                            AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, accumulator, options, state, false);
}
Outcome reduce_scatter(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                       AlgorithmState* state) {
  return start(OperationKind::reduce_scatter, communicator, accumulator, options, state, true).wait();
}
Request<Outcome> ireduce_scatter(Communicator& communicator, Accumulator accumulator, const CallOptions& options,
                                 AlgorithmState* state) {
  return start(OperationKind::reduce_scatter, communicator, accumulator, options, state, false);
}

#define TULLE_COLLECTIVE(name)                                                                         \
  Outcome name(Communicator& communicator, AnyStream& stream, const CallOptions& options) {            \
    return run_blocking(OperationKind::name, communicator, stream, options);                           \
  }                                                                                                    \
  Request<Outcome> i##name(Communicator& communicator, AnyStream stream, const CallOptions& options) { \
    return start(OperationKind::name, communicator, std::move(stream), options, nullptr, false);       \
  }
TULLE_COLLECTIVE(allgather)
TULLE_COLLECTIVE(reduce_scatter)
TULLE_COLLECTIVE(reduce)
TULLE_COLLECTIVE(broadcast)
#undef TULLE_COLLECTIVE

}  // namespace tulle
