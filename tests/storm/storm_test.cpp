// Ranks die at every message, several at a time, at any moment; the transport is late, silent or wrong: whoever goes on
// has what the others have.
#include <gtest/gtest.h>

#include "storm/storm.hpp"

namespace tulle::storm {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

class Storm : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  static Schedule calm(int ranks) { return {.ranks = ranks, .row = GetParam(), .faults = {}}; }
};
INSTANTIATE_TEST_SUITE_P(Rows, Storm, ::testing::ValuesIn(rows()),
                         [](const auto& row) { return std::string(row.param->name); });

// Kills `victim` at one message after the other, until it lives to the end of the job; gives how often it died.
int kill_at_every_message(Schedule schedule, int victim) {
  const auto others = schedule.faults.deaths;
  for (int kills = 0;; ++kills) {
    schedule.seed = 1 + static_cast<std::uint64_t>(kills);
    schedule.faults.deaths = others;
    schedule.faults.deaths.push_back({victim, static_cast<std::uint64_t>(kills), 1e-5});
    const Report report = run(schedule);
    EXPECT_EQ(report.complaint, "") << describe(schedule);
    if (!report.complaint.empty() || report.dead == std::ssize(others)) return kills;
  }
}

// The sum and the agreement on it, the last message included.
TEST_P(Storm, every_rank_killed_at_every_message_leaves_the_others_with_one_sum) {
  int kills = 0;
  for (int ranks = 2; ranks <= (kIsSlow ? 5 : 9); ++ranks) {
    Schedule schedule = calm(ranks);
    if (ranks == 2) schedule.quorum = Quorum::any;
    for (int victim = 0; victim < ranks && !HasFailure(); ++victim) kills += kill_at_every_message(schedule, victim);
  }
  EXPECT_GT(kills, kIsSlow ? 100 : 500);
}

// One has died at the beginning: now also while the others shrink, and in the second sum.
TEST_P(Storm, every_second_rank_killed_at_every_message_leaves_the_others_with_one_sum) {
  int kills = 0;
  for (const int ranks : kIsSlow ? std::vector{5} : std::vector{3, 5, 6, 8}) {
    for (int victim = 0; victim < ranks && !HasFailure(); ++victim) {
      Schedule schedule = calm(ranks);
      schedule.faults.deaths = {{(victim + 1) % ranks, 1, 1e-6}};
      kills += kill_at_every_message(schedule, victim);
    }
  }
  EXPECT_GT(kills, kIsSlow ? 100 : 500);
}

TEST_P(Storm, every_pair_of_deaths_among_five_leaves_three_with_one_sum) {
  const std::uint64_t stride = kIsSlow ? 7 : 2;
  for (int first = 0; first < 5; ++first) {
    for (int second = 0; second < 5; ++second) {
      if (first == second) continue;
      for (std::uint64_t after = 0; after < 24; after += stride) {
        for (std::uint64_t then = 0; then < 24; then += stride) {
          Schedule schedule = calm(5);
          schedule.faults.deaths = {{first, after, 1e-5}, {second, then, 1e-4}};
          const Report report = run(schedule);
          ASSERT_EQ(report.complaint, "") << describe(schedule);
        }
      }
    }
  }
}

// In parts, because each test has a time limit.
class Storms : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, Storms, ::testing::Range<std::uint64_t>(0, 5));

// scripts/storm --replay N says more about a number that fails here.
TEST_P(Storms, of_random_schedules_never_tear_the_survivors_apart) {
  constexpr std::uint64_t kSchedules = kIsSlow ? 300 : 20'000;
  std::uint64_t dead = 0, committed = 0, excluded = 0;
  const std::uint64_t first = 1 + GetParam() * kSchedules;
  for (std::uint64_t number = first; number < first + kSchedules; ++number) {
    const Report report = run(random_schedule(number));
    ASSERT_EQ(report.complaint, "") << "schedule " << number << ": " << describe(random_schedule(number));
    dead += static_cast<std::uint64_t>(report.dead);
    committed += static_cast<std::uint64_t>(report.committed);
    excluded += static_cast<std::uint64_t>(report.excluded);
  }
  EXPECT_GT(dead, kSchedules / 3);
  EXPECT_GT(committed, kSchedules);
  EXPECT_GT(excluded, kSchedules / 10);
}

// One that knows of a death before the leader does was left out, and the dead one was not.
TEST(StormSchedules, that_failed_once_do_not_fail_again) { EXPECT_EQ(run(random_schedule(205'140)).complaint, ""); }

TEST(StormSchedules, give_the_same_report_for_the_same_number) {
  for (std::uint64_t number = 1; number <= 50; ++number) {
    const Report first = run(random_schedule(number)), second = run(random_schedule(number));
    EXPECT_EQ(first.agreements, second.agreements);
    EXPECT_EQ(first.committed, second.committed);
  }
}

}  // namespace
}  // namespace tulle::storm
