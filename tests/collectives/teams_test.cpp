// The arithmetic of bags, quotas and teams, and the controller of b_sag.
#include "collectives/teams.hpp"

#include <set>

#include "collectives/accumulators.hpp"
#include "collectives/patterns/bags.hpp"

namespace tulle::testing {
namespace {

TEST(Bags, send_every_block_but_the_own_to_ranks_that_still_hold_it) {
  for (int size = 1; size <= 40; ++size) {
    std::vector<std::set<int>> held(static_cast<std::size_t>(size));
    for (auto& blocks : held) {
      for (int block = 0; block < size; ++block) blocks.insert(block);
    }
    int rounds = 0;
    for (int distance = patterns::first_bag_distance(size); distance >= 1; distance /= 2, ++rounds) {
      for (int rank = 0; rank < size; ++rank) {
        const patterns::Bag bag = patterns::bag_at(rank, size, distance);
        for (int i = 0; i < bag.blocks; ++i) {
          EXPECT_EQ(held[static_cast<std::size_t>(rank)].erase((bag.first_sent + i) % size), 1u);
        }
      }
      for (int rank = 0; rank < size; ++rank) {
        const patterns::Bag bag = patterns::bag_at(rank, size, distance);
        const patterns::Bag theirs = patterns::bag_at(bag.receive_from, size, distance);
        EXPECT_EQ(theirs.send_to, rank);
        EXPECT_EQ(theirs.first_sent, bag.first_received);
        EXPECT_EQ(theirs.blocks, bag.blocks);
        for (int i = 0; i < bag.blocks; ++i) {
          EXPECT_TRUE(held[static_cast<std::size_t>(rank)].contains((bag.first_received + i) % size));
        }
      }
    }
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(held[static_cast<std::size_t>(rank)], std::set<int>{rank});
    EXPECT_EQ(1 << rounds >= size && (rounds == 0 || 1 << (rounds - 1) < size), true) << size;
  }
}

TEST(Quota, adds_up_and_starves_no_block) {
  for (const int blocks : {1, 2, 5, 8, 13}) {
    for (const std::uint64_t total : {0, 1, 4, 5, 100, 1003}) {
      std::vector<std::uint64_t> over_time(static_cast<std::size_t>(blocks));
      for (std::uint64_t turn = 0; turn < static_cast<std::uint64_t>(blocks); ++turn) {
        std::uint64_t sum = 0;
        for (int block = 0; block < blocks; ++block) {
          const std::uint64_t share = quota(total, 1040 * 1040, blocks, block, turn);
          sum += share;
          over_time[static_cast<std::size_t>(block)] += share;
        }
        EXPECT_EQ(sum, total);
      }
      for (const std::uint64_t share : over_time) EXPECT_EQ(share, total);
    }
  }
}

// Of few values too, and where blocks are empty: what a block cannot bring, another does.
TEST(Quota, is_no_more_than_a_block_has) {
  for (const int blocks : {1, 2, 3, 4, 7, 16}) {
    for (const std::uint64_t dimension : {1, 2, 3, 5, 17, 100}) {
      for (std::uint64_t total = 0; total <= dimension; ++total) {
        for (std::uint64_t turn = 0; turn < 2 * static_cast<std::uint64_t>(blocks); ++turn) {
          std::uint64_t sum = 0;
          for (int block = 0; block < blocks; ++block) {
            const std::uint64_t share = quota(total, dimension, blocks, block, turn);
            ASSERT_LE(share, block_of(dimension, blocks, block).size());
            sum += share;
          }
          ASSERT_EQ(sum, total) << total << " of " << dimension << " in " << blocks << " blocks, turn " << turn;
        }
      }
    }
  }
  constexpr std::uint64_t kMany = std::uint64_t{1} << 62;
  EXPECT_EQ(quota(kMany, kMany, 4, 2, 3), kMany / 4);
}

// A world in which `grows_by · h` values come out.
double settle(TeamGatherState& state, double grows_by, int calls) {
  for (int call = 0; call < calls; ++call) update(state, grows_by * state.h);
  return grows_by * state.h;
}

TEST(TeamGatherController, begins_and_moves_as_the_paper_says) {
  TeamGatherState state;
  prepare(state, 1200, 12, 3);
  EXPECT_EQ(state.h, 100);                   // k/P
  EXPECT_DOUBLE_EQ(state.step, 0.01 * 200);  // 0.01·k·(d−1)/P
  update(state, 1000);                       // too few: grows
  EXPECT_DOUBLE_EQ(state.h, 102);
  update(state, 1000);  // the second move in one direction doubles the step
  EXPECT_DOUBLE_EQ(state.h, 106);
  update(state, 1200);  // just enough still grows
  EXPECT_DOUBLE_EQ(state.h, 110);
  update(state, 1201);  // a turn halves it
  EXPECT_DOUBLE_EQ(state.h, 108);
}

TEST(TeamGatherController, converges_and_follows_a_change) {
  TeamGatherState state;
  prepare(state, 1200, 12, 3);
  EXPECT_NEAR(settle(state, 8, 200), 1200, 30);
  EXPECT_NEAR(settle(state, 5, 200), 1200, 30);
  EXPECT_NEAR(settle(state, 11, 200), 1200, 30);
}

TEST(TeamGatherController, stays_between_all_alike_and_none_alike) {
  TeamGatherState state;
  prepare(state, 1200, 12, 3);
  settle(state, 1, 500);
  EXPECT_EQ(state.h, 300);  // d·k/P
  settle(state, 1000, 500);
  EXPECT_EQ(state.h, 100);  // k/P
}

// Calls until h stays within a tenth of where `grows_by · h` values are the target.
int calls_to_settle(TeamGatherState state, double grows_by) {
  int last_away = 0;
  for (int call = 1; call <= 2000; ++call) {
    update(state, grows_by * state.h);
    if (std::abs(grows_by * state.h - state.target) > 0.1 * state.target) last_away = call;
  }
  return last_away;
}

TEST(TeamGatherController, does_not_wind_up_while_it_stands_at_an_end) {
  TeamGatherState fresh;
  prepare(fresh, 1200, 12, 3);
  for (const double grows_by : {1.0, 1000.0}) {
    for (const int calls : {50, 500, 5000}) {
      TeamGatherState wound = fresh;
      settle(wound, grows_by, calls);
      EXPECT_LE(std::abs(wound.step), 0.01 * (wound.most_h - wound.least_h));
      EXPECT_LE(calls_to_settle(wound, 6), 40) << "after " << calls;
    }
  }
  EXPECT_LE(calls_to_settle(fresh, 6), 40);
}

TEST(TeamGatherController, starts_anew_when_the_task_changes) {
  TeamGatherState state;
  prepare(state, 1200, 12, 3);
  settle(state, 8, 50);
  const double learned = state.h;
  prepare(state, 1200, 12, 3);
  EXPECT_EQ(state.h, learned);
  prepare(state, 2400, 12, 3);
  EXPECT_EQ(state.h, 200);
}

// Fewer values than half the teams: a team's share of them rounds to none.
TEST(BSag, delivers_something_in_every_call) {
  struct Shape {
    int ranks, teams;
    std::uint64_t k;
  };
  for (const Shape& shape : {Shape{8, 8, 1}, Shape{8, 8, 3}, Shape{16, 8, 2}, Shape{12, 6, 2}, Shape{8, 4, 1}}) {
    SCOPED_TRACE(::testing::Message() << "P = " << shape.ranks << ", d = " << shape.teams << ", k = " << shape.k);
    const auto gradients = make_accumulators<double>(shape.ranks, 24);
    auto accumulators = gradients;
    std::vector<AlgorithmState> states(static_cast<std::size_t>(shape.ranks));
    std::set<std::uint64_t> seen;
    for (std::uint64_t step = 0; step < 200; ++step) {
      const SimRun run = reduce_accumulators(
          OperationKind::allreduce, accumulators,
          {.algorithm = "spardl", .k = shape.k, .teams = shape.teams, .team_gather = "b_sag", .step = step}, &states);
      expect_no_errors(run.errors);
      const AnyStream& result = run.outcomes[0].stream;
      EXPECT_GE(result.nnz(), 1u) << "step " << step;
      EXPECT_LE(result.nnz(), shape.k);
      for (std::uint64_t i = 0; i < result.nnz(); ++i) seen.insert(result.index_at(i));
      for (std::size_t rank = 0; rank < accumulators.size(); ++rank) {
        for (std::size_t i = 0; i < 24; ++i) accumulators[rank][i] += gradients[rank][i];
      }
    }
    EXPECT_GE(seen.size(), 8u) << "always the same";
  }
}

TEST(BSag, delivers_about_k_once_its_controller_has_settled_and_after_a_change) {
  constexpr int kRanks = 6;
  constexpr std::uint64_t kK = 600;
  std::vector<AlgorithmState> states(kRanks);
  const auto came_out_after = [&](int calls, std::uint64_t shared_seed) {
    std::uint64_t delivered = 0;
    for (int call = 0; call < calls; ++call) {
      // Ranks agree on where large values are to a degree that the seed decides.
      auto gradients = make_accumulators<float>(kRanks, 6000, static_cast<std::uint64_t>(call) + 10);
      const auto common = make_accumulators<float>(1, 6000, shared_seed)[0];
      for (auto& values : gradients) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += (shared_seed % 2 == 0 ? 3.0f : 0.1f) * common[i];
      }
      const SimRun run = reduce_accumulators(OperationKind::allreduce, gradients,
                                             {.algorithm = "spardl", .k = kK, .teams = 3}, &states);
      expect_no_errors(run.errors);
      delivered = run.outcomes[0].stream.nnz();
      for (const AlgorithmState& state : states) EXPECT_EQ(state.team_gather.h, states[0].team_gather.h);
    }
    return static_cast<double>(delivered);
  };
  EXPECT_NEAR(came_out_after(60, 2), kK, 0.1 * kK);
  EXPECT_NEAR(came_out_after(60, 3), kK, 0.1 * kK);
}

}  // namespace
}  // namespace tulle::testing
