// Runs any row of the registry on any transport and checks what every collective promises.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "stream/synthetic.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/sim.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::testing {

inline std::vector<AnyStream> make_inputs(int ranks, SyntheticSpec spec) {
  std::vector<AnyStream> inputs;
  spec.ranks = ranks;
  for (spec.rank = 0; spec.rank < ranks; ++spec.rank) inputs.push_back(synthetic_stream(spec));
  return inputs;
}

/// Every rank's part in one collective: starts it with its input and keeps the outcome.
inline Program one_collective(OperationKind kind, const std::vector<AnyStream>& inputs, const CallOptions& options,
                              std::vector<Outcome>& outcomes) {
  outcomes.resize(inputs.size());
  return [=, &inputs, &outcomes](Communicator& communicator) -> Task<> {
    // Parameters of the lambda live in the coroutine; its captures live as long as the program.
    const auto rank = static_cast<std::size_t>(communicator.rank());
    auto request = start_collective(kind, communicator, inputs[rank], options);
    outcomes[rank] = co_await request;
  };
}

struct SimRun {
  std::vector<Outcome> outcomes;
  std::vector<std::exception_ptr> errors;
  double seconds = 0;
  SimTotals totals;
};

inline SimRun run_in_simulation(OperationKind kind, const std::vector<AnyStream>& inputs,
                                const CallOptions& options = {}, SimOptions sim = {}) {
  sim.ranks = static_cast<int>(inputs.size());
  SimWorld world(sim);
  SimRun run;
  const Program program = one_collective(kind, inputs, options, run.outcomes);
  run.errors = world.try_run(program);
  run.seconds = world.elapsed_seconds();
  run.totals = world.totals();
  return run;
}

inline std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
  return "no error";
}

/// What a program without ranks computes: the streams reduced one after the other, as dense vectors.
template <class V>
std::vector<V> serial_reduction(const std::vector<AnyStream>& inputs, const Op& op, std::vector<double>* magnitudes) {
  const std::uint64_t dimension = inputs.front().dimension();
  AnyStream sum = to_dense(inputs.front(), op);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) sum = reduce(sum, to_dense(inputs[rank], op), op);
  if (magnitudes != nullptr) {
    magnitudes->assign(dimension, 0);
    for (const AnyStream& input : inputs) {
      const std::vector<V> values = Stream<V>(input).to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) (*magnitudes)[i] += std::abs(static_cast<double>(values[i]));
    }
  }
  return Stream<V>(sum).to_vector(op);
}

/// Integers must be equal; sums of floats may differ by the rounding of any order of summation.
template <class V>
void expect_equals_serial(const std::vector<V>& got, const std::vector<V>& expected,
                          const std::vector<double>& magnitudes, std::size_t ranks) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    const double allowed = std::is_integral_v<V> ? 0 : static_cast<double>(ranks) * magnitudes[i] * 1.2e-7;
    ASSERT_LE(difference, allowed) << "at index " << i << ": " << static_cast<double>(got[i]) << " is not "
                                   << static_cast<double>(expected[i]);
  }
}

template <class V>
void expect_sum(const AnyStream& got, const std::vector<V>& expected, const std::vector<double>& magnitudes,
                std::size_t ranks, const Op& op) {
  got.validate();
  expect_equals_serial(Stream<V>(to_dense(got, op)).to_vector(op), expected, magnitudes, ranks);
}

/// What the collective promises about its outcomes: the right values, the same bits everywhere.
template <class V>
void expect_correct(OperationKind kind, const std::vector<AnyStream>& inputs, const std::vector<Outcome>& outcomes,
                    const CallOptions& options, bool same_bits = true) {
  const std::size_t ranks = inputs.size();
  const auto root = static_cast<std::size_t>(options.root);
  if (kind == OperationKind::broadcast) {
    for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.stream == inputs[root]);
    return;
  }
  std::vector<double> magnitudes;
  const std::vector<V> expected = serial_reduction<V>(inputs, options.op, &magnitudes);
  if (kind == OperationKind::reduce) {
    expect_sum<V>(outcomes[root].stream, expected, magnitudes, ranks, options.op);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(rank == root || outcomes[rank].stream.nnz() == 0);
    }
    return;
  }
  if (kind == OperationKind::reduce_scatter) {
    PoolVector<AnyStream> blocks;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(outcomes[rank].stream.range(),
                block_of(inputs.front().dimension(), static_cast<int>(ranks), static_cast<int>(rank)));
      blocks.push_back(outcomes[rank].stream);
    }
    expect_sum<V>(concatenate(blocks, options.op), expected, magnitudes, ranks, options.op);
    return;
  }
  expect_sum<V>(outcomes[0].stream, expected, magnitudes, ranks, options.op);
  for (std::size_t rank = 1; rank < ranks && same_bits; ++rank) {
    ASSERT_TRUE(outcomes[rank].stream == outcomes[0].stream) << "rank " << rank << " differs from rank 0";
  }
}

inline void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    ASSERT_FALSE(errors[rank]) << "rank " << rank << ": " << message_of(errors[rank]);
  }
}

/// The rows that a simulation can run and that take streams.
inline std::vector<const Algorithm*> rows_on_messages() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& algorithm : registry()) {
    if (algorithm.needs == Needs::messages && algorithm.takes == Takes::stream) rows.push_back(&algorithm);
  }
  return rows;
}

inline std::vector<const Algorithm*> rows_of(OperationKind kind) {
  std::vector<const Algorithm*> rows;
  for (const Algorithm* row : rows_on_messages()) {
    if (row->kind == kind) rows.push_back(row);
  }
  return rows;
}

/// 1 to 17 and a few beyond; fewer where a sanitizer makes everything ten times slower.
inline std::vector<int> rank_counts() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return {1, 2, 3, 4, 5, 7, 8, 13, 33};
#else
  std::vector<int> counts;
  for (int ranks = 1; ranks <= 17; ++ranks) counts.push_back(ranks);
  counts.insert(counts.end(), {31, 32, 33});
  return counts;
#endif
}

}  // namespace tulle::testing
