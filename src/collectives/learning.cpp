#include "collectives/learning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/choice_basis.hpp"
#include "collectives/experience.hpp"
#include "stream/kernels.hpp"

namespace tulle {
namespace {

// Until an option or an earlier call says better.
constexpr double kAssumedDensity = 0.01;

// What was added to the union, of what uniform positions would have added.
double overlap_of(CostInput input, double nnz, double result_nnz) {
  input.nnz = nnz;
  input.overlap = 1;
  const double expected = input.union_of(input.ranks) - nnz;
  return expected > 0 ? std::clamp((result_nnz - nnz) / expected, 0.0, 2.0) : 1;
}

// What the caller says of the data, else what the state knows.
CostInput with_data(CostInput input, const CallOptions& options, const AlgorithmState* state) {
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

bool asks_for_a_choice(const CallOptions& options) {
  return options.algorithm == kAuto || options.algorithm == kAutoSparse || options.algorithm == kAutoDense;
}

}  // namespace

CostInput cost_input(const Communicator& communicator, const Shape& shape, const CallOptions& options,
                     const AlgorithmState* state) {
  CostInput input = choice_basis(communicator, choice_by(options.reproducible));
  input.dimension = static_cast<double>(shape.dimension);
  input.value_bytes = static_cast<double>(size_of(compute_type(shape.type)));
  input.index_bytes = static_cast<double>(index_bytes(shape.dimension));
  input.index_coding = options.index_coding;
  input.coded_value_bytes = coded_value_bytes(options.value_coding, shape.type);
  input.layout_value_bytes = layout_value_bytes(options.value_coding, shape.type);
  input.teams = options.teams;
  if (shape.takes == Takes::accumulator) {
    input.nnz = static_cast<double>(options.k);
    input.result_nnz = input.union_of(input.ranks);
    return input;
  }
  return with_data(input, options, state);
}

namespace {

// TULLE_ALGORITHM, for whoever wants to try rows without touching a program: it stands in for auto, in every allreduce
// of what the row takes.
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

const Algorithm& choose_by_cost(OperationKind kind, const CostInput& base, const Shape& shape,
                                const CallOptions& options, const AlgorithmState* state) {
  RowNeeds needs{.kind = kind, .takes = shape.takes, .coded_values = codes_values(options)};
  if (options.algorithm == kAutoSparse) needs.input = Layout::sparse;
  if (options.algorithm == kAutoDense) needs.input = Layout::dense;
  static const Experience none;
  const bool learns = state != nullptr && !options.reproducible;
  if (const std::uint8_t settled = learns ? settled_on(state->experience) : 0) {
    const Algorithm& row = registry()[settled - 1u];
    if (can_serve(row, needs)) return row;
  }
  const bool has_data = shape.takes == Takes::accumulator;  // k is an option
  return choose(needs, has_data ? base : with_data(base, options, state), learns ? state->experience : none);
}

// How many values of a dense result are not the neutral element, by a sample: to look at all would take as long as a
// pass over the result. The step is odd, so that data with a period of a power of two is not met at one place of it
// alone. Fewer samples would take overlaps for others that are 10 % off; more would show beside calls on short vectors.
double sampled_nnz(const AnyStream& result, const Op& op) {
  constexpr std::uint64_t kSamples = 1024;
  const std::uint64_t size = result.range().size(), step = (size / kSamples) | 1;
  const std::size_t bytes = size_of(result.type());
  const ScalarBytes neutral = stored_neutral(op, result.type());
  const std::byte* const values = result.values_buffer().data();
  std::uint64_t looked_at = 0, found = 0;
  for (std::uint64_t i = 0; i < size; i += step, ++looked_at) {
    if (std::memcmp(values + i * bytes, neutral.data(), bytes) != 0) ++found;
  }
  return static_cast<double>(found) / static_cast<double>(looked_at) * static_cast<double>(size);
}

// K of the call. A dense result is asked where its zeros mean something: not where coding rounds values to zero, and
// not where every rank brought all there is. Elsewhere the overlap of earlier calls stands.
double result_nnz_of(const CostInput& seen, const Lesson& lesson, const Outcome& outcome) {
  if (!outcome.stream.is_dense()) return static_cast<double>(outcome.stream.nnz());
  if (outcome.stream.is_phantom() || codes_values(lesson.options) || seen.nnz >= seen.dimension) {
    return seen.union_of(seen.ranks);
  }
  return std::max(seen.nnz, sampled_nnz(outcome.stream, lesson.options.op));
}

// The call's k and K.
CostInput seen_by(const AlgorithmState& state, const Lesson& lesson, const Outcome& outcome) {
  CostInput seen = lesson.shape;
  seen.overlap = state.calls > 0 ? overlap_of(seen, state.nnz_per_rank, state.result_nnz) : 1;
  seen.nnz = static_cast<double>(outcome.contributed) / seen.ranks;
  seen.result_nnz = result_nnz_of(seen, lesson, outcome);
  seen.overlap = overlap_of(seen, seen.nnz, seen.result_nnz);
  return seen;
}

}  // namespace

bool is_left_to_auto(OperationKind kind, const Shape& shape, const CallOptions& options) {
  return asks_for_a_choice(options) && forced_row(kind, shape.takes) == nullptr;
}

ChosenRow choose_row(OperationKind kind, const CostInput& base, const Shape& shape, const CallOptions& options,
                     const AlgorithmState* state) {
  if (!asks_for_a_choice(options)) return {find_algorithm(kind, options.algorithm), false};
  if (const Algorithm* const forced = forced_row(kind, shape.takes)) return {*forced, false};
  return {choose_by_cost(kind, base, shape, options, state), true};
}

bool teaches(const Algorithm& algorithm, const AlgorithmState* state) {
  return state != nullptr && algorithm.kind == OperationKind::allreduce && algorithm.takes == Takes::stream;
}

// Where everyone was empty, that tells of the calls to come only as long as nothing else does. MPI's own row counts no
// contributions.
void learn(AlgorithmState& state, const Lesson& lesson, const Outcome& outcome) {
  const bool is_empty = outcome.contributed == 0;
  if (lesson.row.needs == Needs::native_allreduce || (is_empty && state.nnz_per_rank > 0)) {
    state.experience.last_expected_seconds = 0;
    return;
  }
  const CostInput seen = seen_by(state, lesson, outcome);
  state.calls += 1;
  state.nnz_per_rank = seen.nnz;
  state.result_nnz = seen.result_nnz;
  note_call(state.experience, {.last_call = lesson.last_call,
                               .row = algorithm_number(lesson.row),
                               .expected_seconds = lesson.row.cost_seconds(seen),
                               .nnz = seen.nnz,
                               .is_chosen = lesson.by_auto});
  state.experience.last_seconds = lesson.seconds;
}

}  // namespace tulle
