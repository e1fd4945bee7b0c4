// Faults by seed: delays and reorders change nothing; lost, cut and flipped bytes never give a wrong sum.
#include "collectives/harness.hpp"

namespace tulle::testing {
namespace {

constexpr double kDeadline = 0.05;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSchedules = 40;
#else
constexpr std::uint64_t kSchedules = 400;
#endif

class Faulty : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& row() const { return *GetParam(); }
  CallOptions options() const { return {.algorithm = row().name, .deadline_seconds = kDeadline, .checksum = true}; }
  static int ranks_for(std::uint64_t seed) { return 2 + static_cast<int>(seed % 8); }
  static std::vector<AnyStream> inputs_for(std::uint64_t seed) {
    return make_inputs(
        ranks_for(seed),
        {.dimension = 500, .nnz = 20 + seed % 100, .values = SyntheticValues::gaussian_like, .seed = seed});
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, Faulty, ::testing::ValuesIn(rows_on_messages()),
                         [](const auto& row) { return std::string(row.param->name); });

TEST_P(Faulty, delays_and_reorders_change_no_bit) {
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const auto inputs = inputs_for(seed);
    const SimRun calm = run_in_simulation(row().kind, inputs, options());
    const SimRun shaken =
        run_in_simulation(row().kind, inputs, options(), {.seed = seed, .faults = {.max_delay_seconds = 1e-4}});
    expect_no_errors(shaken.errors);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      ASSERT_TRUE(shaken.outcomes[rank].stream == calm.outcomes[rank].stream) << "seed " << seed << ", rank " << rank;
    }
  }
}

// A rank either returns the right bits or throws tulle::Error, and it does so before its deadline has long passed.
void expect_right_or_error(const Algorithm& row, std::uint64_t seed, const SimFaults& faults,
                           const CallOptions& options, const std::vector<AnyStream>& inputs, std::uint64_t& failures) {
  const SimRun calm = run_in_simulation(row.kind, inputs, options);
  const SimRun run = run_in_simulation(row.kind, inputs, options, {.seed = seed, .faults = faults});
  bool any_error = false;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    if (!run.errors[rank]) {
      ASSERT_TRUE(run.outcomes[rank].stream == calm.outcomes[rank].stream)
          << "wrong sum: seed " << seed << ", rank " << rank;
      continue;
    }
    any_error = true;
    try {
      std::rethrow_exception(run.errors[rank]);
    } catch (const Error& error) {
      ASSERT_TRUE(error.rank().has_value()) << error.what();
    }
  }
  if (run.totals.faults == 0) {
    ASSERT_FALSE(any_error);
  }
  ASSERT_LE(run.seconds, 2 * kDeadline) << "seed " << seed;
  failures += any_error;
}

TEST_P(Faulty, lost_messages_end_in_an_error_within_the_deadline) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    expect_right_or_error(row(), seed, {.max_delay_seconds = 1e-4, .drop = 0.05}, options(), inputs_for(seed),
                          failures);
  }
  EXPECT_GT(failures, kSchedules / 20);
}

TEST_P(Faulty, cut_messages_never_give_a_wrong_sum) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    expect_right_or_error(row(), seed, {.max_delay_seconds = 1e-4, .truncate = 0.05}, options(), inputs_for(seed),
                          failures);
  }
  EXPECT_GT(failures, kSchedules / 20);
}

TEST_P(Faulty, flipped_bits_never_give_a_wrong_sum) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    expect_right_or_error(row(), seed, {.max_delay_seconds = 1e-4, .corrupt = 0.05}, options(), inputs_for(seed),
                          failures);
  }
  EXPECT_GT(failures, kSchedules / 20);
}

TEST_P(Faulty, a_rank_that_never_calls_is_named) {
  SimWorld world({.ranks = 4});
  const auto inputs = make_inputs(4, {.dimension = 100, .nnz = 10});
  const CallOptions with_deadline = options();
  const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
    if (communicator.rank() == 3) co_return;
    auto request = start_collective(row().kind, communicator, inputs[0], with_deadline);
    co_await request;
  });
  EXPECT_FALSE(errors[3]);
  // A root that only sends, or a leaf of a tree, owes nothing to the missing rank; somebody else does.
  std::string all;
  for (const auto& error : errors) all += message_of(error) + "\n";
  if (row().kind != OperationKind::broadcast) {
    EXPECT_NE(all.find("did not finish within 0.05 s: it waits in step"), std::string::npos) << all;
    EXPECT_NE(all.find("for rank 3"), std::string::npos) << all;
  }
}

TEST(Disagreement, of_ranks_is_told_to_both_sides_at_once) {
  struct Difference {
    std::string_view field;
    AnyStream stream;
    CallOptions options;
  };
  const AnyStream usual = Stream<float>(1000);
  const CallOptions by_sum{.algorithm = "ssar_recursive_double"};
  const std::vector<Difference> differences = {
      {"dimension", Stream<float>(1001), by_sum},
      {"type", Stream<double>(1000), by_sum},
      {"op", usual, {.algorithm = "ssar_recursive_double", .op = Op::max()}},
      {"algorithm", usual, {.algorithm = "ssar_split_allgather"}},
      {"options", usual, {.algorithm = "ssar_recursive_double", .root = 1}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.field);
    SimWorld world({.ranks = 3});
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      const bool odd_one = communicator.rank() == 1;
      auto request =
          iallreduce(communicator, odd_one ? difference.stream : usual, odd_one ? difference.options : by_sum);
      co_await request;
    });
    for (const auto& error : errors) {
      const std::string message = message_of(error);
      EXPECT_NE(message.find("ranks disagree on operation 0 (" + std::string(difference.field)), std::string::npos)
          << message;
    }
    EXPECT_LT(world.elapsed_seconds(), 0.1);
  }
}

TEST(Disagreement, on_the_profile_or_the_nodes_is_told) {
  const auto errors_with = [](const std::function<void(Communicator&)>& set) {
    SimWorld world({.ranks = 4});
    return world.try_run([&](Communicator& communicator) -> Task<> {
      set(communicator);
      auto request = iallreduce(communicator, Stream<float>(100), {.algorithm = "ssar_split_allgather"});
      co_await request;
    });
  };
  for (const auto& error : errors_with([](Communicator& communicator) {
         if (communicator.rank() == 1) communicator.set_profile({.alpha_seconds = 1});
       })) {
    EXPECT_NE(message_of(error).find("ranks disagree on operation 0 (options"), std::string::npos) << message_of(error);
  }
  for (const auto& error : errors_with([](Communicator& communicator) {
         const int mine[] = {0, 0, 1, 1}, others[] = {0, 1, 0, 1};
         communicator.set_nodes(communicator.rank() == 1 ? mine : others);
       })) {
    EXPECT_NE(message_of(error).find("ranks disagree on operation 0 (options"), std::string::npos) << message_of(error);
  }
  // Numbers of nodes mean nothing but equal or not.
  expect_no_errors(errors_with([](Communicator& communicator) {
    const int mine[] = {7, -1, 7, -1}, others[] = {0, 1, 0, 1};
    communicator.set_nodes(communicator.rank() == 1 ? mine : others);
  }));
}

TEST(Disagreement, on_the_order_of_calls_is_told) {
  SimWorld world({.ranks = 2});
  const auto errors = world.try_run([](Communicator& communicator) -> Task<> {
    const bool first = communicator.rank() == 0;
    auto one = iallreduce(communicator, Stream<float>(first ? 10 : 20));
    auto two = iallreduce(communicator, Stream<float>(first ? 20 : 10));
    co_await one;
    co_await two;
  });
  for (const auto& error : errors)
    EXPECT_NE(message_of(error).find("ranks disagree on operation 0"), std::string::npos);
}

TEST(Unsupported, requests_leave_the_communicator_as_it_was) {
  SimWorld world({.ranks = 2});
  world.run([](Communicator& communicator) -> Task<> {
    EXPECT_THROW((void)iallreduce(communicator, Stream<float>(10), {.algorithm = "mpi_native"}), Error);
    EXPECT_THROW((void)iallreduce(communicator, Stream<float>(std::uint64_t{1} << 32), {.algorithm = "dense_ring"}),
                 Error);
    auto request = iallreduce(communicator, Stream<float>(10));
    co_await request;
  });
}

TEST(BadInput, is_told_before_anything_is_sent) {
  SimWorld world({.ranks = 2});
  Communicator& communicator = world.communicator(0);
  Stream<float> stream(10);
  const auto expect_bad_input = [&](const CallOptions& options, std::string_view part) {
    try {
      (void)iallreduce(communicator, stream, options);
      FAIL() << "accepted " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_bad_input({.algorithm = "ssar_recursive_duble"}, "there are auto, ssar_recursive_double");
  expect_bad_input({.op = Op::bit_or()}, "bit_or is defined on i32 and i64, not on f32");
  expect_bad_input({.root = 2}, "root 2");
  expect_bad_input({.density = 1.5}, "density 1.5");
  EXPECT_EQ(world.totals().messages, 0u);
  world.run([](Communicator& usable) -> Task<> {
    auto request = iallreduce(usable, Stream<float>(10));
    co_await request;
  });
}

}  // namespace
}  // namespace tulle::testing
