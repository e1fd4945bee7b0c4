// Several collectives in flight, threads, the progress thread, and what a steady state costs.
#include <atomic>

#include "collectives/count_allocations.hpp"
#include "collectives/harness.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::testing {
namespace {

TEST(ManyInFlight, complete_in_any_order_with_the_right_sums) {
  constexpr int kRanks = 5, kLayers = 20;
  SimWorld world({.ranks = kRanks, .seed = 3, .faults = {.max_delay_seconds = 1e-3}});
  std::vector<std::vector<AnyStream>> layers;
  for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
    layers.push_back(
        make_inputs(kRanks, {.type = ValueType::i64, .dimension = 100 + 50 * layer, .nnz = 30, .seed = layer}));
  }
  const auto rows = rows_of(OperationKind::allreduce);
  std::vector<std::vector<Outcome>> outcomes(kLayers, std::vector<Outcome>(kRanks));
  world.run([&](Communicator& communicator) -> Task<> {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    std::vector<Request<Outcome>> requests;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      requests.push_back(iallreduce(communicator, layers[layer][rank], {.algorithm = rows[layer % rows.size()]->name}));
    }
    for (std::size_t layer = kLayers; layer-- > 0;) outcomes[layer][rank] = co_await requests[layer];
  });
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    expect_correct<std::int64_t>(OperationKind::allreduce, layers[layer], outcomes[layer], {});
  }
}

class OnThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OnThreads, ::testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST_P(OnThreads, every_row_gives_the_bytes_of_the_simulator) {
  const int ranks = GetParam();
  const auto inputs = make_inputs(ranks, {.dimension = 3000, .nnz = 200, .values = SyntheticValues::gaussian_like});
  for (const Algorithm* row : rows_on_messages()) {
    SCOPED_TRACE(row->name);
    const CallOptions options{.algorithm = row->name};
    const SimRun simulated = run_in_simulation(row->kind, inputs, options);
    expect_no_errors(simulated.errors);
    std::vector<AnyStream> results(inputs.size());
    run_threads(ranks, [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      results[rank] = start_collective(row->kind, communicator, inputs[rank], options).wait().stream;
    });
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      ASSERT_TRUE(results[rank] == simulated.outcomes[rank].stream) << "rank " << rank;
    }
  }
}

TEST_P(OnThreads, the_progress_thread_completes_what_nobody_waits_for) {
  const int ranks = GetParam();
  const auto inputs = make_inputs(ranks, {.type = ValueType::i64, .dimension = 3000, .nnz = 200});
  std::vector<Outcome> outcomes(inputs.size());
  run_threads(ranks, [&](Communicator& communicator) {
    communicator.start_progress_thread();
    const auto rank = static_cast<std::size_t>(communicator.rank());
    for (int round = 0; round < 20; ++round) {
      auto first = iallreduce(communicator, inputs[rank], {.algorithm = "ssar_split_allgather"});
      auto second = iallreduce(communicator, inputs[rank], {.algorithm = "dense_ring"});
      outcomes[rank] = second.wait();
      ASSERT_TRUE(to_dense(first.wait().stream, Op::sum()) == outcomes[rank].stream);
    }
  });
  expect_correct<std::int64_t>(OperationKind::allreduce, inputs, outcomes, {});
}

TEST_P(OnThreads, split_communicators_work_side_by_side) {
  const int ranks = GetParam();
  run_threads(ranks, [&](Communicator& communicator) {
    Communicator part = communicator.split(communicator.rank() % 2);
    const std::uint32_t index[] = {static_cast<std::uint32_t>(communicator.rank())};
    const std::int32_t one[] = {1};
    Stream<std::int32_t> mine = Stream<std::int32_t>::from_sorted<std::uint32_t>(160, index, one);
    AnyStream in_part = mine, in_all = mine;
    auto whole = iallreduce(communicator, in_all);
    allreduce(part, in_part);
    EXPECT_EQ(Stream<std::int32_t>(whole.wait().stream).nnz(), static_cast<std::uint64_t>(ranks));
    EXPECT_EQ(in_part.nnz(), static_cast<std::uint64_t>(part.size()));
  });
}

TEST(OnThreads, an_error_on_one_rank_reaches_all_and_later_calls_throw) {
  std::atomic<int> failed{0};
  run_threads(3, [&](Communicator& communicator) {
    Stream<float> stream(communicator.rank() == 1 ? 11 : 10);
    EXPECT_THROW(allreduce(communicator, stream, {.algorithm = "dense_ring", .deadline_seconds = 20}), Error);
    EXPECT_EQ(stream.dimension(), communicator.rank() == 1 ? 11u : 10u);  // as it was
    try {
      allreduce(communicator, stream);
    } catch (const Error& error) {
      failed += error.kind() == ErrorKind::broken;
    }
  });
  EXPECT_EQ(failed, 3);
}

TEST(Auto, learns_from_blocking_calls_and_stays_with_the_options_when_reproducible) {
  run_threads(4, [&](Communicator& communicator) {
    communicator.set_profile({.alpha_seconds = 1e-5, .beta_seconds_per_byte = 1e-8});
    const SyntheticSpec spec{.dimension = 100000, .nnz = 60000, .ranks = 4, .rank = communicator.rank()};
    const AnyStream full = synthetic_stream(spec);
    AnyStream stream = full;
    const std::string_view before = allreduce(communicator, stream, {.reproducible = true}).algorithm;
    stream = full;
    const std::string_view after = allreduce(communicator, stream).algorithm;
    EXPECT_NE(before, after);
    EXPECT_TRUE(find_algorithm(OperationKind::allreduce, after).dense_result) << after;
    stream = full;
    EXPECT_EQ(allreduce(communicator, stream, {.reproducible = true}).algorithm, before);
    stream = full;
    EXPECT_EQ(allreduce(communicator, stream, {.density = 0.6, .reproducible = true}).algorithm, after);
  });
}

TEST(Auto, agrees_when_ranks_contribute_different_amounts) {
  run_threads(5, [&](Communicator& communicator) {
    for (int round = 0; round < 6; ++round) {
      const std::uint64_t nnz = communicator.rank() == round % 5 ? 5000 : 3;
      AnyStream stream = synthetic_stream({.dimension = 10000, .nnz = nnz, .ranks = 5, .rank = communicator.rank()});
      EXPECT_NO_THROW(allreduce(communicator, stream));
    }
  });
}

TEST(SteadyState, allocates_nothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers allocate";
#endif
  constexpr int kRanks = 4;
  const auto inputs = make_inputs(kRanks, {.dimension = 50000, .nnz = 500});
  for (const Algorithm* row : rows_on_messages()) {
    SCOPED_TRACE(row->name);
    SimWorld world({.ranks = kRanks});
    std::vector<Request<Outcome>> requests;
    requests.reserve(kRanks);
    const auto step = [&] {
      requests.clear();
      for (int rank = 0; rank < kRanks; ++rank) {
        requests.push_back(start_collective(row->kind, world.communicator(rank), inputs[static_cast<std::size_t>(rank)],
                                            {.algorithm = row->name}));
      }
      for (Request<Outcome>& request : requests) (void)request.wait();
    };
    for (int warm_up = 0; warm_up < 20; ++warm_up) step();
    const std::uint64_t allocations_before = allocation_count();
    const std::uint64_t pool_before = pool_stats().system_allocations;
    for (int i = 0; i < 20; ++i) step();
    EXPECT_EQ(allocation_count() - allocations_before, 0u);
    EXPECT_EQ(pool_stats().system_allocations - pool_before, 0u);
  }
}

}  // namespace
}  // namespace tulle::testing
