// Ranks that are killed, false news and partitions, in simulation.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tulle/comm/sim.hpp"

namespace tulle {
namespace {

constexpr Step kAnswer = 9;

// Rank 0 sends five messages to rank 1, which counts what comes and then answers.
Task<> send_five(Operation& operation, int& received) {
  for (Step step = 0; step < 5; ++step) {
    if (operation.rank() == 0) operation.send(1, step, {}, 0);
    if (operation.rank() != 1) continue;
    auto receive = operation.receive(0, step);
    co_await receive;
    received += 1;
  }
  if (operation.rank() == 1) operation.send(0, kAnswer, {}, 0);
  if (operation.rank() != 0) co_return;
  auto receive = operation.receive(1, kAnswer);
  co_await receive;
}

struct Ended {
  int received = 0;
  std::vector<std::string> errors;
  bool is_first_dead = false;
  double seconds = 0;
};

Ended run_with(const SimFaults& faults) {
  SimWorld world({.ranks = 3, .faults = faults});
  Ended run;
  for (const auto& error : world.try_run([&](Communicator& communicator) -> Task<> {
         auto operation = communicator.start({.deadline_seconds = 1},
                                             [&](Operation& started) { return send_five(started, run.received); });
         co_await Engine::Finished(operation);
       })) {
    try {
      if (error) std::rethrow_exception(error);
      run.errors.emplace_back();
    } catch (const Error& thrown) {
      run.errors.emplace_back(thrown.what());
    }
  }
  run.is_first_dead = world.is_dead(0);
  run.seconds = world.elapsed_seconds();
  return run;
}

TEST(SimDeaths, let_arrive_what_was_sent_and_are_told) {
  for (std::uint64_t after = 0; after <= 5; ++after) {
    const Ended run = run_with({.deaths = {{.rank = 0, .after_messages = after, .told_within_seconds = 0.5}}});
    EXPECT_EQ(run.received, static_cast<int>(after));
    EXPECT_EQ(run.is_first_dead, after < 5);
    if (after == 5) continue;
    EXPECT_EQ(run.errors[1], "rank 1: rank 0 is lost: it has died");
    EXPECT_EQ(run.errors[0], "the simulation has killed this rank");
  }
}

TEST(SimDeaths, that_nobody_tells_are_found_by_the_deadline) {
  const Ended run = run_with({.deaths = {{.rank = 0, .after_messages = 2, .told_within_seconds = std::nullopt}}});
  EXPECT_EQ(run.received, 2);
  EXPECT_NE(run.errors[1].find("did not finish within 1 s: it waits in step 2 for rank 0"), std::string::npos)
      << run.errors[1];
}

TEST(SimRumors, are_believed) {
  const Ended run = run_with({.max_delay_seconds = 0.5, .rumors = {{.to = 1, .about = 0, .seconds = 0}}});
  EXPECT_EQ(run.errors[1], "rank 1: rank 0 is lost: it is said to be gone");
  EXPECT_FALSE(run.is_first_dead);
}

TEST(SimPartitions, lose_what_crosses_them_while_they_last) {
  EXPECT_EQ(run_with({.partitions = {{0, 2, {0}}}}).received, 0);
  EXPECT_EQ(run_with({.partitions = {{0, 2, {1}}}}).received, 0);
  EXPECT_EQ(run_with({.partitions = {{0, 2, {2}}}}).received, 5);
  EXPECT_EQ(run_with({.partitions = {{0, 2, {0, 1}}}}).received, 5);
  EXPECT_EQ(run_with({.partitions = {{1, 2, {0}}}}).received, 5);
}

TEST(SimFaults, of_ranks_that_are_not_there_are_refused) {
  EXPECT_THROW(run_with({.deaths = {{.rank = 3}}}), Error);
  EXPECT_THROW(run_with({.rumors = {{.to = 0, .about = -1}}}), Error);
  EXPECT_THROW(run_with({.partitions = {{0, 1, {7}}}}), Error);
}

}  // namespace
}  // namespace tulle
