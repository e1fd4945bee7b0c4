#include "tulle/collectives/collectives.hpp"

#include <fmt/format.h>

#include <span>

#include "collectives/exchange.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/stream/reduce.hpp"

namespace tulle {
namespace {

// Until an option or an earlier call says better.
constexpr double kAssumedDensity = 0.01;

std::string_view name_of_algorithm(std::uint8_t number) {
  return number >= 1 && number <= registry().size() ? registry()[number - 1].name : "unknown";
}

CostInput cost_input(const Communicator& communicator, const AnyStream& stream, const CallOptions& options,
                     const AlgorithmState* state) {
  CostInput input;
  input.ranks = communicator.size();
  input.dimension = static_cast<double>(stream.dimension());
  input.value_bytes = static_cast<double>(size_of(compute_type(stream.type())));
  input.index_bytes = static_cast<double>(index_bytes(stream.dimension()));
  input.profile = communicator.profile();
  input.nnz = kAssumedDensity * input.dimension;
  const bool learned = state != nullptr && state->calls > 0 && !options.reproducible;
  if (options.density) {
    input.nnz = *options.density * input.dimension;
  } else if (learned) {
    input.nnz = state->nnz_per_rank;
  }
  input.result_nnz = learned && !options.density ? state->result_nnz : input.union_of(input.ranks);
  return input;
}

const Algorithm& resolve(OperationKind kind, const Communicator& communicator, const AnyStream& stream,
                         const CallOptions& options, const AlgorithmState* state) {
  if (options.algorithm != kAuto) return find_algorithm(kind, options.algorithm);
  return choose(kind, cost_input(communicator, stream, options, state));
}

// What a row cannot do, told before anything is sent and so without breaking the communicator: it depends on what is
// equal on all ranks alone.
void require_supported(const Algorithm& algorithm, const Communicator& communicator, const AnyStream& stream,
                       const CallOptions& options) {
  if (algorithm.dense_result && stream.dimension() >= kDenseDimensionLimit) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{} makes a dense vector and refuses 2^32 values or more (N = {}); use a sparse algorithm",
                            algorithm.name, stream.dimension()));
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

void check_input(OperationKind kind, const Communicator& communicator, const AnyStream& stream,
                 const CallOptions& options) {
  options.op.require_defined_on(stream.type());
  if (stream.range() != Range{0, stream.dimension()}) {
    throw Error(ErrorKind::bad_input, fmt::format("{} takes a stream of the whole dimension, not the block [{}, {})",
                                                  to_string(kind), stream.range().begin, stream.range().end));
  }
  if (options.root < 0 || options.root >= communicator.size()) {
    throw Error(ErrorKind::bad_input,
                fmt::format("root {} is not a rank of a communicator of {}", options.root, communicator.size()));
  }
  if (options.density && !(*options.density >= 0 && *options.density <= 1)) {
    throw Error(ErrorKind::bad_input, fmt::format("density {} is not in [0, 1]", *options.density));
  }
}

CallSignature signature_of(const Algorithm& algorithm, const AnyStream& stream, const CallOptions& options,
                           bool blocking) {
  CallSignature signature;
  signature.kind = algorithm.kind;
  signature.type = stream.type();
  signature.op = options.op.code();
  signature.algorithm = algorithm_number(algorithm);
  signature.dimension = stream.dimension();
  const std::string_view user_op = options.op.user_op() != nullptr ? options.op.name() : std::string_view();
  const bool native_blocks = algorithm.needs == Needs::native_allreduce && blocking;  // MPI tells the two apart
  signature.options_hash = static_cast<std::uint32_t>(options.root) * 0x9E3779B9u ^
                           crc32c(std::as_bytes(std::span(user_op))) ^ (native_blocks ? 0x85EBCA6Bu : 0u);
  signature.algorithm_name = algorithm.name;
  signature.name_of_algorithm = name_of_algorithm;
  return signature;
}

void learn(AlgorithmState& state, const Outcome& outcome, int ranks) {
  if (outcome.contributed == 0) return;
  state.calls += 1;
  state.nnz_per_rank = static_cast<double>(outcome.contributed) / ranks;
  state.result_nnz = static_cast<double>(outcome.stream.nnz());
}

// What an operation keeps while it runs.
struct Call {
  const Algorithm& algorithm;
  Payload payload;
  CallOptions options;
  AlgorithmState* state;
};

// f16 and bf16 travel and are summed in f32; the result is rounded once, at the end.
Task<> run_call(Operation& operation, Call call, std::shared_ptr<std::optional<Outcome>> result) {
  const ValueType type = call.payload.stream.type();
  const bool widened = type != compute_type(type);
  if (widened) call.payload.stream = convert(call.payload.stream, compute_type(type));
  Outcome outcome = co_await call.algorithm.run(operation, call.payload, call.options, call.state);
  KernelReport report;
  if (widened) outcome.stream = convert(outcome.stream, type, &report);
  outcome.overflowed = report.overflowed;
  outcome.algorithm = call.algorithm.name;
  outcome.counts = operation.counts();
  const bool teaches = call.state != nullptr && call.algorithm.kind == OperationKind::allreduce;
  if (teaches) learn(*call.state, outcome, operation.size());
  *result = std::move(outcome);
}

Request<Outcome> start(OperationKind kind, Communicator& communicator, AnyStream stream, const CallOptions& options,
                       AlgorithmState* state, bool blocking) {
  check_input(kind, communicator, stream, options);
  const Algorithm& algorithm = resolve(kind, communicator, stream, options, state);
  require_supported(algorithm, communicator, stream, options);
  const auto result = std::allocate_shared<std::optional<Outcome>>(PoolAllocator<std::optional<Outcome>>());
  const CallSignature signature = signature_of(algorithm, stream, options, blocking);
  auto operation = communicator.engine()->start(
      communicator.context(), signature, options.deadline_seconds, options.checksum, [&](Operation& started) {
        started.set_blocking(blocking);
        return run_call(started, Call{algorithm, {std::move(stream)}, options, state}, result);
      });
  return {communicator.engine(), std::move(operation), result};
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

Outcome allreduce(Communicator& communicator, AnyStream& stream, const CallOptions& options, AlgorithmState* state) {
  // Blocking calls end in the same order everywhere, so what they teach is the same on all ranks.
  if (state == nullptr) state = &communicator.history(stream.dimension(), stream.type());
  return run_blocking(OperationKind::allreduce, communicator, stream, options, state);
}
Request<Outcome> iallreduce(Communicator& communicator, AnyStream stream, const CallOptions& options,
                            AlgorithmState* state) {
  return start(OperationKind::allreduce, communicator, std::move(stream), options, state, false);
}

#define TULLE_COLLECTIVE(name)                                                                            \
  Outcome name(Communicator& communicator, AnyStream& stream, const CallOptions& options) {               \
    return run_blocking(OperationKind::name, communicator, stream, options);                              \
  }                                                                                                       \
  Request<Outcome> i##name(Communicator& communicator, AnyStream stream, const CallOptions& options) {    \
    return start(OperationKind::name, communicator, std::move(stream), options, nullptr, false);          \
  }
TULLE_COLLECTIVE(allgather)
TULLE_COLLECTIVE(reduce_scatter)
TULLE_COLLECTIVE(reduce)
TULLE_COLLECTIVE(broadcast)
#undef TULLE_COLLECTIVE

}  // namespace tulle
