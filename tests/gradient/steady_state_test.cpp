// Steps of a training that is under way: small parameters share messages, and nobody asks the system for memory.
#include "collectives/count_allocations.hpp"
#include "gradient/fused_group.hpp"
#include "gradient/training.hpp"
#include "tulle/base/buffer.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
std::uint64_t allocations() { return tulle::testing::allocation_count() + pool_stats().system_allocations; }

class SteadyState : public ::testing::TestWithParam<const Preset*> {};

// One rank, so that no other thread's luck is counted; what a rank allocates for messages is tested in collectives.
TEST_P(SteadyState, AllocatesNothingAfterTheThirdStep) {
  run_threads(1, [&](Communicator& communicator) {
    Recipe recipe = GetParam()->recipe;
    recipe.dense_below = 100;
    Synchronizer synchronizer = Synchronizer::make(
        communicator,
        {{"hidden", 20000, Role::hidden, 100}, {"output", 5000, Role::output}, {"bias", 64}, {"norm", 32}}, recipe);
    std::vector<Values> gradients, values;
    for (ParameterId id = 0; id < 4; ++id) {
      gradients.push_back(integer_gradient(synchronizer.parameters()[id].size, 0, 0, id));
    }
    values = gradients;
    const std::array<std::span<float>, 4> spans = {values[0], values[1], values[2], values[3]};
    // Now and then a step selects more than any before it, and the pool grows. What steps ask for in any case shows in
    // every window, so that the best one counts; ten steps see all phases of thresholds and signs.
    constexpr int kFirst = 3, kWindow = 10, kWindows = 20;
    std::uint64_t before = 0, least = ~std::uint64_t{0};
    for (int step = 0; step < kFirst + kWindow * kWindows; ++step) {
      if (step >= kFirst && (step - kFirst) % kWindow == 0) before = allocations();
      for (ParameterId id = 0; id < 4; ++id) std::ranges::copy(gradients[id], values[id].begin());
      synchronizer.step(spans);
      if (step >= kFirst && (step - kFirst) % kWindow == kWindow - 1) least = std::min(least, allocations() - before);
    }
    EXPECT_EQ(least, 0u);
  });
}

std::vector<const Preset*> all_presets() {
  std::vector<const Preset*> rows;
  for (const Preset& preset : presets()) rows.push_back(&preset);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Presets, SteadyState, ::testing::ValuesIn(all_presets()),
                         [](const auto& row) { return std::string(row.param->name); });
#endif

Training many_small(std::uint64_t fuse_below) {
  Training training{.ranks = 4, .recipe = parse_recipe("topk:2%|dense_below:500"), .steps = 3};
  for (int i = 0; i < 40; ++i) {
    training.parameters.push_back({"p" + std::to_string(i), i % 8 == 0 ? 2000u : static_cast<unsigned>(i)});
  }
  training.options.fuse_below = fuse_below;
  training.gradient = [sizes = training.parameters](int rank, std::uint64_t step, ParameterId id) {
    return integer_gradient(sizes[id].size, rank, step, id);
  };
  return training;
}

std::uint64_t bytes_of(const Trained& trained) {
  std::uint64_t bytes = 0;
  for (const auto& by_rank : trained.stats) bytes += by_rank.front().bytes_sent;
  return bytes;
}

TEST(Fusion, GivesTheSameUpdatesWithFewerBytesInAnyOrder) {
  const Trained apart = train(many_small(0));
  Training training = many_small(1000);
  const Trained together = train(training);
  EXPECT_EQ(together.updates, apart.updates);
  EXPECT_EQ(together.residuals, apart.residuals);
  EXPECT_LT(bytes_of(together), bytes_of(apart));
  training.any_order = true;
  training.options.fuse_values = 100;  // several groups
  for (training.seed = 1; training.seed <= 4; ++training.seed) EXPECT_EQ(train(training).updates, apart.updates);
}

TEST(Fusion, OfSelectionsGivesTheSameUpdatesWithFewerBytesInAnyOrder) {
  const Trained apart = train(many_small(1000));
  Training training = many_small(4000);
  const Trained together = train(training);
  EXPECT_EQ(apart.plans[0][8].together, "");
  EXPECT_EQ(together.plans[0][8].together, "p0");
  EXPECT_EQ(together.stats[8][0].route, "selected");
  EXPECT_EQ(together.updates, apart.updates);
  EXPECT_EQ(together.residuals, apart.residuals);
  EXPECT_LT(bytes_of(together), bytes_of(apart));
  training.any_order = true;
  training.options.fuse_values = 5000;  // several groups
  for (training.seed = 1; training.seed <= 4; ++training.seed) {
    const Trained trained = train(training);
    EXPECT_EQ(trained.updates, apart.updates);
    EXPECT_EQ(trained.residuals, apart.residuals);
  }
}

TEST(Fusion, LeavesSelectionsApartThatAreCodedTogether) {
  Training training = many_small(4000);
  training.recipe = parse_recipe("topk:2%|dense_below:500|qsgd:4");
  const Trained trained = train(training);
  EXPECT_EQ(trained.plans[0][8].together, "");
  EXPECT_EQ(trained.plans[0][9].together, "p1");
}

// A rank's only value, at the index of its number.
AnyStream one_value(int rank, float value) {
  const std::vector<std::uint32_t> index = {static_cast<std::uint32_t>(rank)};
  const Values values = {value};
  return Stream<float>::from_sorted(3, std::span<const std::uint32_t>(index), std::span<const float>(values));
}

Values multiples(float value) { return {value, 2 * value, 3 * value}; }
Values thrice(float value) { return {value, value, value}; }

void add_members(FusedGroup& group) {
  for (const char* const name : {"whole", "away", "selected", "also_whole"}) group.add(name, 3);
}

// Each rank's members arrive in another order: two send all, one a selection, and one travels by itself.
Task<> sum_in_own_ways(Communicator& communicator) {
  FusedGroup group(communicator, 12);
  add_members(group);
  const Values values = multiples(1), more = multiples(10);
  const CallOptions options{.density = 0.5};
  for (int i = 0; i < 4; ++i) {
    const int member = (i + communicator.rank()) % 4;
    if (member == 0) group.contribute_all(0, Stream<float>::borrow_dense(values), options);
    if (member == 1) group.stay_away(1);
    if (member == 2) group.contribute_selection(2, one_value(communicator.rank(), 5), options);
    if (member == 3) group.contribute_all(3, Stream<float>::borrow_dense(more), options);
    if (i < 3) {
      EXPECT_FALSE(group.test(static_cast<std::size_t>(member)));
    }
  }
  Task<AnyStream> first = group.sum_of(0);
  EXPECT_EQ(Stream<float>(co_await first).to_vector(), multiples(3));
  Task<AnyStream> third = group.sum_of(2);
  EXPECT_EQ(Stream<float>(co_await third).to_vector(), thrice(5));
  Task<AnyStream> last = group.sum_of(3);
  EXPECT_EQ(Stream<float>(co_await last).to_vector(), multiples(30));
  EXPECT_GT(group.counts_of(2).bytes_sent, 0u);
}

TEST(Fusion, SumsWhatMembersSendInTheirOwnWays) {
  SimWorld world(SimOptions{.ranks = 3});
  for (const std::exception_ptr& error : world.try_run(sum_in_own_ways)) EXPECT_EQ(message_of(error), "");
}

TEST(Fusion, SkipsMembersAndVoidsTheirStepsOneByOne) {
  Training training = many_small(4000);
  training.options.non_finite = NonFinitePolicy::skip;
  const GradientFunction gradient = training.gradient;
  training.gradient = [=](int rank, std::uint64_t step, ParameterId id) {
    Values values = gradient(rank, step, id);
    if (rank == 2 && step == 1 && (id == 5 || id == 8)) values[3] = std::numeric_limits<float>::infinity();
    return rank == 1 && id == 6 ? Values{} : values;
  };
  const Trained trained = train(training);
  expect_same_updates(trained);
  EXPECT_EQ(trained.updates[1][5][0], Values(5));
  EXPECT_EQ(trained.updates[1][8][0], Values(2000));
  EXPECT_NE(trained.updates[1][16][0], Values(2000));
  EXPECT_NE(trained.updates[1][7][0], Values(7));
  Values mean(6);
  for (const int rank : {0, 2, 3}) {
    for (std::size_t i = 0; i < 6; ++i) mean[i] += gradient(rank, 0, 6)[i] / 4;
  }
  EXPECT_EQ(trained.updates[0][6][3], mean);
}

TEST(Fusion, SaysWhoIsMissingInsteadOfWaitingForEver) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = Synchronizer::make(communicator, {{"a", 2}, {"b", 2}}, parse_recipe("dense"));
    const Values gradient = {1, 2};
    synchronizer.start(0, std::span(gradient));
    EXPECT_FALSE(synchronizer.test(0));
    try {
      (void)synchronizer.finish(0);
      ADD_FAILURE() << "it did not wait for b";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a travels with b"), std::string::npos) << error.what();
    }
    synchronizer.end_step();
    EXPECT_EQ(Stream<float>(synchronizer.finish(0).stream).to_vector(), gradient);
    EXPECT_EQ(Stream<float>(synchronizer.finish(1).stream).to_vector(), Values(2));
  });
}

}  // namespace
}  // namespace tulle::gradient
