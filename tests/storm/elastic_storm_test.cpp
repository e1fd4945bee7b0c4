// Ranks of a training die at every message; those who are left have what a training would have that they left between
// two steps.
#include "storm/elastic_storm.hpp"

#include <gtest/gtest.h>

namespace tulle::storm {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

constexpr TrainedRecipe kRecipes[] = {
    {"dense", "dense"},
    {"dense_integers", "dense|aggregate:sum", true},
    {"topk_integers", "topk:10%|dense_below:20|aggregate:sum", true},
    {"topk", "topk:10%|dense_below:20|momentum:0.9"},
    {"redsync", "redsync:10%|dense_below:20|search_from:40"},
    {"redsync_quantized", "redsync_quantized:10%|dense_below:20"},
    {"spardl_integers", "spardl:15%|dense_below:20|aggregate:sum", true},
    {"spardl_teams", "spardl:15%|dense_below:20|teams:2"},
    {"oktopk", "oktopk:15%|dense_below:20"},
    {"three_lc", "three_lc|dense_below:20"},
    {"powersgd", "powersgd:2|dense_below:20"},
    {"outer", "dense|outer:nesterov"},
    {"energy", "topk:10%|dense_below:20|energy:0.7"},
    {"adaptive", "adaptive:topk:10%|dense_below:20"},
    {"fp16", "fp16"},
    {"qsgd", "qsgd:4"},
    {"int8", "int8"},
    {"dgc", "dgc:10%|dense_below:20"},
    {"gtopk_integers", "gtopk:15%|dense_below:20|aggregate:sum", true},
    {"one_bit", "one_bit|dense_below:20"},
    {"three_value_stochastic", "three_value_stochastic|dense_below:20"},
    {"sparse5", "sparse5|dense_below:20"},
    {"sparseloco", "sparseloco:1|keep:4/16|dense_below:20"},
    {"warm_up", "topk:10%|dense_below:20|warm_up:dense|warm_up_steps:2"},
};

class ElasticStorm : public ::testing::TestWithParam<TrainedRecipe> {
 protected:
  static ElasticSchedule calm(int ranks) {
    ElasticSchedule schedule{.ranks = ranks, .recipe = GetParam(), .faults = {}};
    if (ranks == 2) schedule.quorum = Quorum::any;
    return schedule;
  }
  static bool can_run(int ranks) { return std::string_view(GetParam().name) != "spardl_teams" || ranks % 2 == 0; }
};
INSTANTIATE_TEST_SUITE_P(Recipes, ElasticStorm, ::testing::ValuesIn(kRecipes),
                         [](const auto& recipe) { return std::string(recipe.param.name); });

TEST_P(ElasticStorm, that_does_not_come_changes_nothing) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    if (!can_run(ranks)) continue;
    const ElasticOutcome outcome = run(calm(ranks));
    EXPECT_EQ(outcome.complaint, "") << ranks << " ranks";
    EXPECT_EQ(outcome.undone_begun, 0);
    EXPECT_EQ(outcome.checked_sums, GetParam().is_exact ? 3 : 0);
  }
}

// Kills `victim` at one message after the other, until it lives to the end of the job.
void kill_at_every_message(int victim, const ElasticSchedule& calm, ElasticOutcome& sum) {
  for (std::uint64_t kills = 0;; ++kills) {
    ElasticSchedule schedule = calm;
    schedule.seed = 1 + kills;
    schedule.faults.deaths = {{victim, kills, 1e-5}};
    const ElasticOutcome outcome = run(schedule);
    ASSERT_EQ(outcome.complaint, "") << describe(schedule);
    sum.dead += outcome.dead;
    sum.undone_begun += outcome.undone_begun;
    sum.undone_completed += outcome.undone_completed;
    sum.checked_sums += outcome.checked_sums;
    sum.joined += outcome.joined;
    if (outcome.dead == 0) return;
  }
}

TEST_P(ElasticStorm, every_rank_killed_at_every_message_leaves_the_others_as_if_it_had_left) {
  ElasticOutcome sum;
  for (int ranks = 2; ranks <= (kIsSlow ? 4 : 5); ++ranks) {
    if (!can_run(ranks)) continue;
    for (int victim = 0; victim < ranks && !HasFatalFailure(); ++victim) {
      kill_at_every_message(victim, calm(ranks), sum);
    }
  }
  EXPECT_GT(sum.dead, 30);
  EXPECT_GT(sum.undone_begun, 30);
  EXPECT_GT(sum.undone_completed, 0);
  if (GetParam().is_exact) {
    EXPECT_GT(sum.checked_sums, 30);
  }
}

// Of two old ranks and a newcomer, and of three and one: also while it is let in.
TEST_P(ElasticStorm, every_rank_killed_at_every_message_while_a_newcomer_comes_leaves_one_model) {
  ElasticOutcome sum;
  for (const int ranks : {3, 4}) {
    ElasticSchedule schedule = calm(ranks);
    schedule.newcomers = 1;
    if (!can_run(ranks - 1) || (kIsSlow && ranks > 3)) continue;
    if (ranks == 3) schedule.quorum = Quorum::any;
    for (int victim = 0; victim < ranks && !HasFatalFailure(); ++victim) kill_at_every_message(victim, schedule, sum);
  }
  EXPECT_GT(sum.dead, 30);
  EXPECT_GT(sum.joined, 15);
  EXPECT_GT(sum.undone_begun, 15);
}

TEST_P(ElasticStorm, of_random_schedules_leaves_the_others_as_if_ranks_had_left) {
  int dead = 0;
  for (std::uint64_t number = 1; number <= (kIsSlow ? 20 : 300); ++number) {
    const ElasticSchedule schedule = random_elastic_schedule(number, GetParam());
    if (!can_run(schedule.ranks - schedule.newcomers)) continue;
    const ElasticOutcome outcome = run(schedule);
    ASSERT_EQ(outcome.complaint, "") << "schedule " << number << ": " << describe(schedule);
    dead += outcome.dead;
  }
  EXPECT_GT(dead, kIsSlow ? 5 : 60);
}

}  // namespace
}  // namespace tulle::storm
