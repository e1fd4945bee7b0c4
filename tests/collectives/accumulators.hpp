// Runs rows that take accumulators and checks what they promise.
#pragma once

#include <numeric>

#include "collectives/harness.hpp"
#include "tulle/base/philox.hpp"

namespace tulle::testing {

template <class V>
using Accumulators = std::vector<std::vector<V>>;

/// Integers in V whose sums and shares among up to 16 ranks are exact, a few of them much larger than the others.
template <class V>
Accumulators<V> make_accumulators(int ranks, std::size_t dimension, std::uint64_t seed = 1) {
  constexpr int kDividesBy = 5040 * 16;
  Accumulators<V> all(static_cast<std::size_t>(ranks), std::vector<V>(dimension));
  Philox random(seed);
  for (auto& values : all) {
    for (V& value : values) {
      const auto magnitude = static_cast<int>(random.below(20) == 0 ? random.below(2000) : random.below(30));
      value = static_cast<V>((random.below(2) == 0 ? magnitude : -magnitude) * kDividesBy);
    }
  }
  return all;
}

/// Integers wrap around, as they do in sums of streams.
template <class V>
V wrapping_sum(V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(static_cast<std::make_unsigned_t<V>>(a) + static_cast<std::make_unsigned_t<V>>(b));
  } else {
    return a + b;
  }
}

template <class V>
std::vector<V> sum_of(const Accumulators<V>& all) {
  std::vector<V> sum(all.front().size());
  for (const auto& values : all) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = wrapping_sum(sum[i], values[i]);
  }
  return sum;
}

/// One step of all ranks. No template: GCC 12 gives coroutines in instances of one the same name.
inline SimRun reduce_views(OperationKind kind, const std::vector<Accumulator>& all, const CallOptions& options,
                           std::vector<AlgorithmState>* states, SimOptions sim) {
  sim.ranks = static_cast<int>(all.size());
  SimWorld world(sim);
  SimRun run;
  run.outcomes.resize(all.size());
  const Program program = [&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    AlgorithmState* const state = states != nullptr ? &(*states)[rank] : nullptr;
    auto request = start_collective(kind, communicator, all[rank], options, state);
    run.outcomes[rank] = co_await request;
  };
  run.errors = world.try_run(program);
  run.seconds = world.elapsed_seconds();
  run.totals = world.totals();
  return run;
}

/// Accumulators and states are updated in place.
template <class V>
SimRun reduce_accumulators(OperationKind kind, Accumulators<V>& all, const CallOptions& options,
                           std::vector<AlgorithmState>* states = nullptr, const SimOptions& sim = {}) {
  std::vector<Accumulator> views;
  for (std::vector<V>& values : all) views.emplace_back(std::span<V>(values));
  return reduce_views(kind, views, options, states, sim);
}

inline std::vector<const Algorithm*> rows_on_accumulators() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : registry()) {
    if (row.takes == Takes::accumulator) rows.push_back(&row);
  }
  return rows;
}

/// What arrived: the result that all ranks hold, or the blocks of a reduce_scatter put together.
template <class V>
std::vector<V> delivered_sum(OperationKind kind, const SimRun& run) {
  if (kind != OperationKind::reduce_scatter) return Stream<V>(run.outcomes[0].stream).to_vector();
  std::vector<AnyStream> blocks;
  for (const Outcome& outcome : run.outcomes) blocks.push_back(outcome.stream);
  return Stream<V>(concatenate(blocks, Op::sum())).to_vector();
}

/// Invariant 3: what went in is what came out plus what stayed.
template <class V>
void expect_conserved(OperationKind kind, const std::vector<V>& before, const SimRun& run,
                      const Accumulators<V>& after) {
  std::vector<V> total = sum_of(after);
  const std::vector<V> arrived = delivered_sum<V>(kind, run);
  ASSERT_EQ(total.size(), arrived.size());
  for (std::size_t i = 0; i < total.size(); ++i)
    ASSERT_EQ(wrapping_sum(total[i], arrived[i]), before[i]) << "at index " << i;
}

}  // namespace tulle::testing
