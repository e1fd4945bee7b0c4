// The invariants of the design on every row that takes an accumulator: same bits everywhere, nothing lost, any P.
#include "collectives/accumulators.hpp"
#include "collectives/count_allocations.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

std::vector<int> accumulator_rank_counts() {
  std::vector<int> counts = rank_counts();
  counts.push_back(24);
  return counts;
}

class EveryLossyRow : public ::testing::TestWithParam<std::tuple<const Algorithm*, int>> {
 protected:
  const Algorithm& row() const { return *std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  CallOptions options(std::uint64_t k) const { return {.algorithm = row().name, .k = k}; }
  /// Numbers of teams worth trying.
  std::vector<int> team_counts() const {
    std::vector<int> counts = {1};
    for (int teams = 2; teams <= ranks() && row().name == "spardl"; ++teams) {
      if (ranks() % teams == 0) counts.push_back(teams);
    }
    return counts;
  }
};
INSTANTIATE_TEST_SUITE_P(Registry, EveryLossyRow,
                         ::testing::Combine(::testing::ValuesIn(rows_on_accumulators()),
                                            ::testing::ValuesIn(accumulator_rank_counts())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_on_" +
                                  std::to_string(std::get<1>(info.param)) + "_ranks";
                         });

TEST_P(EveryLossyRow, loses_nothing_and_gives_the_same_bits_everywhere) {
  const auto p = static_cast<std::size_t>(ranks());
  for (const std::size_t dimension : {std::size_t{0}, std::size_t{1}, p - 1, p, std::size_t{997}}) {
    for (const std::uint64_t k : {std::uint64_t{1}, std::uint64_t{p / 2 + 1}, std::uint64_t{100}, std::uint64_t{997}}) {
      for (const int teams : team_counts()) {
        SCOPED_TRACE(::testing::Message() << "N = " << dimension << ", k = " << k << ", teams = " << teams);
        auto accumulators = make_accumulators<std::int64_t>(ranks(), dimension);
        const auto before = sum_of(accumulators);
        CallOptions with_teams = options(k);
        with_teams.teams = teams;
        const SimRun run = reduce_accumulators(row().kind, accumulators, with_teams);
        expect_no_errors(run.errors);
        expect_conserved(row().kind, before, run, accumulators);
        if (row().kind != OperationKind::allreduce) continue;
        for (const Outcome& outcome : run.outcomes) ASSERT_TRUE(outcome.stream == run.outcomes[0].stream);
      }
    }
  }
}

// As selectors do, so that a recipe with another row sends no fewer.
TEST_P(EveryLossyRow, rounds_a_density_up) {
  if (ranks() != 1) return;
  for (const auto& [density, k] : {std::pair{0.0045, 3u}, std::pair{0.1, 51u}, std::pair{1e-6, 1u}}) {
    auto accumulators = make_accumulators<float>(1, 510);
    for (float& value : accumulators[0]) value = value == 0 ? 1 : value;
    const SimRun run = reduce_accumulators(row().kind, accumulators, {.algorithm = row().name, .density = density});
    expect_no_errors(run.errors);
    EXPECT_EQ(run.outcomes[0].stream.nnz(), k) << density;
  }
}

// Blocks that are empty, or smaller than the others, have no quota that a larger one could use.
TEST(Spardl, delivers_all_values_where_all_are_asked_for) {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    for (const std::size_t dimension : {1u, 2u, 3u, 5u, 7u, 17u}) {
      for (std::uint64_t step = 0; step < 8; ++step) {
        auto accumulators = make_accumulators<std::int64_t>(ranks, dimension, step);
        const SimRun run = reduce_accumulators(OperationKind::allreduce, accumulators,
                                               {.algorithm = "spardl", .k = dimension, .step = step});
        expect_no_errors(run.errors);
        // What cancels on its way is no part of the result, and stays where it was.
        EXPECT_EQ(sum_of(accumulators), std::vector<std::int64_t>(dimension))
            << ranks << " ranks, " << dimension << " values, step " << step;
      }
    }
  }
}

TEST_P(EveryLossyRow, delivers_what_is_large) {
  // One rank holds one value that outweighs all others: it arrives, and what arrives is said to.
  auto accumulators = make_accumulators<float>(ranks(), 997);
  accumulators.back()[500] = 1e9f;
  const SimRun run = reduce_accumulators(row().kind, accumulators, options(static_cast<std::uint64_t>(2 * ranks())));
  expect_no_errors(run.errors);
  EXPECT_GT(delivered_sum<float>(row().kind, run)[500], 9e8f);
  EXPECT_LT(std::abs(sum_of(accumulators)[500]), 1e8f);
  bool is_listed = false;
  for (const Outcome& outcome : run.outcomes) {
    for (const std::uint32_t index : outcome.delivered.as<std::uint32_t>()) is_listed |= index == 500;
  }
  EXPECT_TRUE(is_listed);
}

TEST_P(EveryLossyRow, does_not_depend_on_timing) {
  const auto start = make_accumulators<float>(ranks(), 997);
  auto calm_after = start;
  const SimRun calm = reduce_accumulators(row().kind, calm_after, options(60));
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    auto after = start;
    const SimRun shaken = reduce_accumulators<float>(row().kind, after, options(60), nullptr,
                                                     {.seed = seed, .faults = {.max_delay_seconds = 1e-3}});
    expect_no_errors(shaken.errors);
    ASSERT_TRUE(shaken.outcomes[0].stream == calm.outcomes[0].stream);
    ASSERT_EQ(after, calm_after);
  }
}

TEST_P(EveryLossyRow, takes_accumulators_of_zeros) {
  auto accumulators = make_accumulators<double>(ranks(), 300);
  for (std::size_t rank = 0; rank < accumulators.size(); rank += 2) {
    std::fill(accumulators[rank].begin(), accumulators[rank].end(), 0.0);
  }
  const auto before = sum_of(accumulators);
  const SimRun run = reduce_accumulators(row().kind, accumulators, options(40));
  expect_no_errors(run.errors);
  expect_conserved(row().kind, before, run, accumulators);
}

// Residual mode partial gives back no more than global, and local no more than partial: at each rank and index.
TEST_P(EveryLossyRow, keeps_less_in_the_weaker_residual_modes) {
  const auto start = make_accumulators<std::int64_t>(ranks(), 500);
  const auto after_mode = [&](ResidualMode mode) {
    auto accumulators = start;
    CallOptions with_mode = options(80);
    with_mode.residual = mode;
    expect_no_errors(reduce_accumulators(row().kind, accumulators, with_mode).errors);
    return accumulators;
  };
  const auto partial = after_mode(ResidualMode::partial), local = after_mode(ResidualMode::local);
  for (std::size_t rank = 0; rank < start.size(); ++rank) {
    for (std::size_t i = 0; i < start[rank].size(); ++i) {
      // Both only ever leave a value alone or take it out whole.
      ASSERT_TRUE(partial[rank][i] == 0 || partial[rank][i] == start[rank][i]);
      ASSERT_TRUE(local[rank][i] == 0 || local[rank][i] == start[rank][i]);
      ASSERT_TRUE(local[rank][i] == 0 || partial[rank][i] == start[rank][i]);
    }
  }
}

class EveryLossyCoding : public ::testing::TestWithParam<std::tuple<const Algorithm*, const ValueCodecRow*>> {};
std::vector<const ValueCodecRow*> value_codings() {
  std::vector<const ValueCodecRow*> rows;
  for (const ValueCodecRow& row : value_codecs()) rows.push_back(&row);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryLossyCoding,
                         ::testing::Combine(::testing::ValuesIn(rows_on_accumulators()),
                                            ::testing::ValuesIn(value_codings())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_with_" +
                                  std::string(std::get<1>(info.param)->name);
                         });

TEST_P(EveryLossyCoding, loses_nothing_either) {
  const auto& [row, codec] = GetParam();
  for (const int ranks : {1, 3, 4, 6, 8}) {
    for (const int teams : {1, 2, 3, 4}) {
      if (ranks % teams != 0 || (teams > 1 && row->name != "spardl")) continue;
      SCOPED_TRACE(::testing::Message() << "P = " << ranks << ", teams = " << teams);
      auto accumulators = make_accumulators<double>(ranks, 600);
      for (auto& values : accumulators) {
        for (double& value : values) value = codec->coding == ValueCoding::same_sign_mean ? std::abs(value) : value;
        for (double& value : values) value /= 5040 * 16;
      }
      const auto before = sum_of(accumulators);
      const SimRun run = reduce_accumulators(
          row->kind, accumulators,
          {.algorithm = row->name, .value_coding = {.coding = codec->coding, .bucket = 64}, .k = 90, .teams = teams});
      expect_no_errors(run.errors);
      const auto arrived = delivered_sum<double>(row->kind, run);
      const auto stayed = sum_of(accumulators);
      for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(arrived[i] + stayed[i], before[i], 1e-9) << i;
      if (row->kind != OperationKind::allreduce) continue;
      for (const Outcome& outcome : run.outcomes) ASSERT_TRUE(outcome.stream == run.outcomes[0].stream);
    }
  }
}

class OnLossyRows : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& row() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Registry, OnLossyRows, ::testing::ValuesIn(rows_on_accumulators()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(OnLossyRows, an_error_leaves_the_accumulators_as_they_were) {
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    auto accumulators = make_accumulators<float>(5, 400);
    const auto before = accumulators;
    const SimRun run =
        reduce_accumulators<float>(row().kind, accumulators, {.algorithm = row().name, .k = 50, .deadline_seconds = 1},
                                   nullptr, {.seed = seed, .faults = {.drop = 0.1}});
    for (std::size_t rank = 0; rank < accumulators.size(); ++rank) {
      if (!run.errors[rank]) continue;
      ++failures;
      ASSERT_EQ(accumulators[rank], before[rank]) << "seed " << seed << ", rank " << rank;
    }
  }
  EXPECT_GT(failures, 0);
}

// Without a checksum a flipped bit may be a value; in a size, a cut or a head it must be told.
TEST_P(OnLossyRows, flipped_bits_are_told_or_give_a_result) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    auto accumulators = make_accumulators<float>(5, 400);
    std::vector<AlgorithmState> states(5);
    for (int call = 0; call < 3; ++call) {
      const SimRun run = reduce_accumulators<float>(
          row().kind, accumulators, {.algorithm = row().name, .k = 50, .deadline_seconds = 1}, &states,
          {.seed = seed * 3 + static_cast<std::uint64_t>(call), .faults = {.corrupt = 0.02}});
      bool has_failed = false;
      for (const std::exception_ptr& error : run.errors) {
        if (!error) continue;
        has_failed = true;
        EXPECT_THROW(std::rethrow_exception(error), Error);
      }
      if (has_failed) break;  // ranks may keep different states
    }
  }
}

TEST_P(OnLossyRows, several_calls_are_in_flight_together) {
  constexpr int kLayers = 4;
  std::vector<Accumulators<std::int64_t>> layers, started;
  for (int layer = 0; layer < kLayers; ++layer) {
    layers.push_back(make_accumulators<std::int64_t>(5, 200 + 50 * static_cast<std::size_t>(layer)));
  }
  started = layers;
  std::vector<std::vector<Outcome>> outcomes(kLayers, std::vector<Outcome>(5));
  SimWorld world({.ranks = 5});
  world.run([&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    std::vector<Request<Outcome>> requests;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      requests.push_back(start_collective(row().kind, communicator,
                                          Accumulator(std::span<std::int64_t>(layers[layer][rank])),
                                          {.algorithm = row().name, .k = 30}));
    }
    for (std::size_t layer = kLayers; layer-- > 0;) outcomes[layer][rank] = co_await requests[layer];
  });
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    SimRun run;
    run.outcomes = outcomes[layer];
    expect_conserved(row().kind, sum_of(started[layer]), run, layers[layer]);
  }
}

TEST_P(OnLossyRows, phantoms_cost_what_data_costs) {
  auto accumulators = make_accumulators<float>(8, 1u << 16);
  const CallOptions options{.algorithm = row().name, .index_coding = "raw", .k = 4096};
  const SimRun real = reduce_accumulators(row().kind, accumulators, options);
  SimWorld world({.ranks = 8});
  std::vector<Outcome> outcomes(8);
  world.run([&](Communicator& communicator) -> Task<> {
    auto request = start_collective(row().kind, communicator, Accumulator::phantom(ValueType::f32, 1u << 16), options);
    outcomes[static_cast<std::size_t>(communicator.rank())] = co_await request;
  });
  EXPECT_TRUE(outcomes[0].stream.is_phantom());
  EXPECT_NEAR(static_cast<double>(outcomes[0].counts.data_bytes_sent),
              static_cast<double>(real.outcomes[0].counts.data_bytes_sent),
              0.15 * static_cast<double>(real.outcomes[0].counts.data_bytes_sent));
}

// The same gradient in every step, partly opposed between ranks: what was applied approaches what was produced.
TEST_P(OnLossyRows, nothing_starves_over_many_steps) {
  if (row().kind != OperationKind::allreduce) return;  // where results are applied
  for (const int ranks : {4, 5}) {
    const auto gradient = make_accumulators<double>(ranks, 60);
    const auto once = sum_of(gradient);
    Accumulators<double> residual(static_cast<std::size_t>(ranks), std::vector<double>(60));
    std::vector<AlgorithmState> states(static_cast<std::size_t>(ranks));
    std::vector<double> applied(60);
    constexpr int kSteps = 600;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      for (std::size_t rank = 0; rank < residual.size(); ++rank) {
        for (std::size_t i = 0; i < 60; ++i) residual[rank][i] += gradient[rank][i];
      }
      const SimRun run =
          reduce_accumulators(row().kind, residual, {.algorithm = row().name, .k = 3, .step = step}, &states);
      expect_no_errors(run.errors);
      const auto arrived = delivered_sum<double>(row().kind, run);
      for (std::size_t i = 0; i < 60; ++i) applied[i] += arrived[i];
    }
    double largest = 0;
    for (const double value : once) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < 60; ++i) {
      ASSERT_NEAR(applied[i] / kSteps, once[i], 0.15 * largest) << "P = " << ranks << ", index " << i;
    }
  }
}

TEST(AccumulatorsOnThreads, get_the_bytes_of_the_simulator) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const Algorithm* row : rows_on_accumulators()) {
      SCOPED_TRACE(::testing::Message() << row->name << ", P = " << ranks);
      const CallOptions options{.algorithm = row->name, .k = 70, .teams = ranks % 2 == 0 ? 2 : 1};
      auto simulated = make_accumulators<float>(ranks, 1500), threaded = simulated;
      const SimRun run = reduce_accumulators(row->kind, simulated, options);
      expect_no_errors(run.errors);
      run_threads(ranks, [&](Communicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        const Accumulator mine{std::span<float>(threaded[rank])};
        EXPECT_TRUE(start_collective(row->kind, communicator, mine, options).wait().stream ==
                    run.outcomes[rank].stream);
      });
      ASSERT_EQ(threaded, simulated);
    }
  }
}

TEST_P(OnLossyRows, the_steady_state_allocates_nothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers allocate";
#endif
  constexpr int kRanks = 4;
  auto accumulators = make_accumulators<float>(kRanks, 50000);
  const auto gradients = accumulators;
  std::vector<AlgorithmState> states(kRanks);
  SimWorld world({.ranks = kRanks});
  std::vector<Request<Outcome>> requests;
  requests.reserve(kRanks);
  const auto step = [&] {
    requests.clear();
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      std::ranges::copy(gradients[rank], accumulators[rank].begin());
      requests.push_back(start_collective(row().kind, world.communicator(static_cast<int>(rank)),
                                          Accumulator(std::span<float>(accumulators[rank])),
                                          {.algorithm = row().name, .k = 500, .region_period = 1000}, &states[rank]));
    }
    for (Request<Outcome>& request : requests) (void)request.wait();
  };
  for (int warm_up = 0; warm_up < 110; ++warm_up) step();  // some searches for thresholds among them
  const std::uint64_t allocations_before = allocation_count();
  const std::uint64_t pool_before = pool_stats().system_allocations;
  for (int i = 0; i < 40; ++i) step();
  EXPECT_EQ(allocation_count() - allocations_before, 0u);
  EXPECT_EQ(pool_stats().system_allocations - pool_before, 0u);
}

TEST(Accumulators, are_refused_where_they_make_no_sense) {
  const auto refusal = [](auto accumulators, const CallOptions& options) {
    return message_of(reduce_accumulators(OperationKind::allreduce, accumulators, options).errors[0]);
  };
  const auto floats = make_accumulators<float>(4, 10);
  EXPECT_NE(refusal(floats, {}).find("needs k or density"), std::string::npos);
  EXPECT_NE(refusal(floats, {.op = Op::max(), .k = 3}).find("summed"), std::string::npos);
  EXPECT_NE(refusal(floats, {.k = 3, .teams = 3}).find("3 teams"), std::string::npos);
  EXPECT_NE(refusal(floats, {.k = 3, .teams = 2, .team_gather = "x"}).find("r_sag, b_sag"), std::string::npos);
  EXPECT_NE(refusal(floats, {.algorithm = "ssar_split_allgather", .k = 3}).find("not an accumulator"),
            std::string::npos);
  EXPECT_NE(refusal(make_accumulators<float>(6, 10), {.k = 3, .teams = 3, .team_gather = "r_sag"}).find("power of two"),
            std::string::npos);
  const auto streams = make_inputs(2, {.dimension = 10, .nnz = 3});
  const SimRun run = run_in_simulation(OperationKind::allreduce, streams, {.algorithm = "spardl"});
  EXPECT_NE(message_of(run.errors[0]).find("not a stream"), std::string::npos);
}

TEST(Accumulators, of_ranks_that_disagree_on_k_are_told) {
  auto accumulators = make_accumulators<float>(3, 100);
  SimWorld world({.ranks = 3});
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const CallOptions options{.algorithm = "spardl", .k = rank == 1 ? 7u : 8u};
    auto request = iallreduce(communicator, Accumulator(std::span<float>(accumulators[rank])), options);
    co_await request;
  });
  for (const auto& error : errors) EXPECT_NE(message_of(error).find("options"), std::string::npos) << message_of(error);
}

TEST(Accumulators, auto_picks_a_row_that_takes_them) {
  auto accumulators = make_accumulators<float>(4, 1000);
  const SimRun run = reduce_accumulators(OperationKind::allreduce, accumulators, {.density = 0.01});
  expect_no_errors(run.errors);
  EXPECT_EQ(find_algorithm(OperationKind::allreduce, run.outcomes[0].algorithm).takes, Takes::accumulator);
}

}  // namespace
}  // namespace tulle::testing
