// Trainings whose ranks leave and come: in simulation and on threads. tests/storm kills them at every message.
#include "tulle/gradient/elastic.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "gradient/training.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = {{"weight", 200}, {"bias", 6}, {"norm", 3}};
  return all;
}

std::vector<Values> zeros() {
  std::vector<Values> all;
  for (const Parameter& parameter : parameters()) all.emplace_back(parameter.size, 0.0f);
  return all;
}

std::vector<std::span<std::byte>> bytes_of(std::vector<Values>& arrays) {
  std::vector<std::span<std::byte>> all;
  for (Values& values : arrays) all.push_back(std::as_writable_bytes(std::span(values)));
  return all;
}

std::vector<Values> gradients_of(int rank, std::uint64_t step) {
  std::vector<Values> all;
  for (ParameterId id = 0; id < parameters().size(); ++id) {
    all.push_back(integer_gradient(parameters()[id].size, rank, step, id));
  }
  return all;
}

std::vector<std::span<float>> spans_of(std::vector<Values>& values) { return {values.begin(), values.end()}; }

void apply_updates(const std::vector<Values>& updates, std::vector<Values>& weights) {
  for (std::size_t id = 0; id < weights.size(); ++id) {
    for (std::size_t i = 0; i < weights[id].size(); ++i) weights[id][i] -= updates[id][i];
  }
}

std::string kind_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return std::string(to_string(thrown.kind()));
  } catch (const std::exception&) {
    return "another";
  }
  return "none";
}

const AgreeOptions kAgree{.deadline_seconds = 60, .patience_seconds = 5};
const char* const kRecipe = "topk:5%|dense_below:50|momentum:0.9";

// A rank of a training on threads; `disturb` may throw, once the step's exchanges have started.
using Disturb = std::function<void(int rank, std::uint64_t step)>;
struct Ended {
  std::vector<Values> weights;
  ElasticReport report;
  std::vector<MembershipChange> changes;
};
Ended train_elastically(Communicator& whole, ElasticOptions options, const Disturb& disturb) {
  const int rank = whole.rank();
  Communicator current = whole;
  Ended ended;
  ended.weights = zeros();
  Synchronizer synchronizer = Synchronizer::make(current, parameters(), parse_recipe(kRecipe), {.undo = true});
  options.synchronizer = &synchronizer;
  options.arrays = bytes_of(ended.weights);
  options.agree = kAgree;
  options.on_change = [&](Communicator& communicator, const MembershipChange& change) {
    EXPECT_EQ(communicator.context(), synchronizer.communicator().context());
    barrier(communicator);
    ended.changes.push_back(change);
  };
  ended.report = run_elastic(current, options, [&](Communicator&, std::uint64_t step) {
    std::vector<Values> gradients = gradients_of(rank, step);
    for (ParameterId id = 0; id < gradients.size(); ++id) {
      synchronizer.start(id, std::span<const float>(gradients[id]));
    }
    synchronizer.end_step();
    disturb(rank, step);
    for (ParameterId id = 0; id < gradients.size(); ++id) synchronizer.finish_into(id, gradients[id]);
    apply_updates(gradients, ended.weights);
  });
  EXPECT_EQ(synchronizer.completed_steps(), options.steps);
  return ended;
}

std::vector<std::exception_ptr> train_on_threads(int ranks, const ElasticOptions& options, const Disturb& disturb,
                                                 std::vector<Ended>& ended) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  ended.resize(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    try {
      ended[rank] = train_elastically(communicator, options, disturb);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  });
  return errors;
}

TEST(Elastic, StepsThatFailWithoutALossAreRepeatedAndLeaveNoTrace) {
  std::vector<Ended> calm, disturbed;
  train_on_threads(
      3, {.steps = 6}, [](int, std::uint64_t) {}, calm);
  std::array<std::atomic<int>, 3> times = {};
  const auto fail_once = [&](int rank, std::uint64_t step) {
    if (rank != 1 || step != 3 || times[1]++ > 0) return;
    throw Error(ErrorKind::deadline, "this rank has lost its patience");
  };
  const auto errors = train_on_threads(3, {.steps = 6}, fail_once, disturbed);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(message_of(errors[rank]), "");
    EXPECT_EQ(disturbed[rank].weights, calm[rank].weights);
    EXPECT_EQ(disturbed[rank].report.steps, 6u);
    EXPECT_EQ(disturbed[rank].report.shrinks, 1);
    ASSERT_EQ(disturbed[rank].changes.size(), 1u);
    EXPECT_EQ(disturbed[rank].changes[0].step, 3u);
    EXPECT_EQ(disturbed[rank].changes[0].survivors, (std::vector{0, 1, 2}));
    EXPECT_TRUE(disturbed[rank].changes[0].lost.empty());
    EXPECT_EQ(calm[rank].report.shrinks, 0);
  }
}

TEST(Elastic, ARankThatGivesUpIsToldItsOwnErrorAndTheOthersGoOn) {
  std::vector<Ended> ended;
  const auto give_up = [&](int rank, std::uint64_t step) {
    if (rank == 1 && step == 2) throw std::runtime_error("the disk is full");
  };
  const auto errors = train_on_threads(3, {.steps = 5}, give_up, ended);
  EXPECT_EQ(message_of(errors[1]), "the disk is full");
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(message_of(errors[rank]), "");
    EXPECT_EQ(ended[rank].weights, ended[0].weights);
    ASSERT_EQ(ended[rank].report.lost.size(), 1u);
    EXPECT_EQ(ended[rank].report.lost[0].rank, 1);
    EXPECT_FALSE(ended[rank].report.lost[0].residual) << "nobody sent norms";
    EXPECT_EQ(ended[rank].changes[0].survivors, (std::vector{0, 2}));
    EXPECT_TRUE(ended[rank].changes[0].is_undone);
  }
}

TEST(Elastic, AStepThatAlwaysFailsIsGivenUp) {
  std::vector<Ended> ended;
  const auto fail = [&](int rank, std::uint64_t step) {
    if (rank == 0 && step == 1) throw Error(ErrorKind::deadline, "never in time");
  };
  const auto errors = train_on_threads(2, {.steps = 5, .most_tries = 2}, fail, ended);
  EXPECT_EQ(message_of(errors[0]), "never in time");
  EXPECT_NE(message_of(errors[1]), "");
}

// Rank 0 has completed step 1 and looks for newcomers when rank 1 fails in it: both are to look after it again.
TEST(Elastic, RanksThatWentBackFromDifferentStepsLookForNewcomersTogether) {
  std::vector<Ended> ended;
  std::atomic<bool> has_failed = false;
  const auto fail_late = [&](int rank, std::uint64_t step) {
    if (rank != 1 || step != 1 || has_failed.exchange(true)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    throw Error(ErrorKind::deadline, "this rank has lost its patience");
  };
  const auto meet = [](Communicator& members) {
    barrier(members);
    return members;
  };
  const auto errors = train_on_threads(2, {.steps = 9, .grow_every = 2, .grow = meet}, fail_late, ended);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(message_of(errors[rank]), "");
    EXPECT_EQ(ended[rank].report.shrinks, 1);
    EXPECT_EQ(ended[rank].weights, ended[0].weights);
  }
}

TEST(Elastic, WhatIsNoErrorInGrowEndsThisRankAndTheOthersGoOn) {
  std::vector<Ended> ended;
  std::atomic<int> calls = 0;
  const auto throw_once = [&](Communicator& members) {
    if (members.rank() == 1 && calls++ == 0) throw std::runtime_error("no door");
    barrier(members);
    return members;
  };
  const auto errors = train_on_threads(
      3, {.steps = 5, .grow_every = 2, .grow = throw_once}, [](int, std::uint64_t) {}, ended);
  EXPECT_EQ(message_of(errors[1]), "no door");
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(message_of(errors[rank]), "");
    EXPECT_EQ(ended[rank].report.lost.size(), 1u);
  }
}

// Ranks that come later are part of a larger communicator all the time.
TEST(Elastic, ANewcomerOnThreadsTakesPartFromTheStepOnInWhichItCame) {
  constexpr int kOld = 2;
  std::vector<std::vector<Values>> weights(kOld + 1);
  std::vector<ElasticReport> reports(kOld + 1);
  std::vector<std::uint64_t> steps(kOld + 1);
  run_threads(kOld + 1, [&](Communicator& whole) {
    const auto rank = static_cast<std::size_t>(whole.rank());
    const bool is_new = rank == kOld;
    const Communicator first = whole.split(is_new ? 1 : 0);
    Communicator members = is_new ? whole : first;
    weights[rank] = zeros();
    const auto arrays = bytes_of(weights[rank]);
    const Recipe recipe = parse_recipe(kRecipe);
    Synchronizer synchronizer = is_new ? join_elastic(whole, parameters(), recipe, {.undo = true}, arrays)
                                       : Synchronizer::make(members, parameters(), recipe, {.undo = true});
    const ElasticOptions options{
        .steps = 8,
        .synchronizer = &synchronizer,
        .arrays = arrays,
        .agree = kAgree,
        .grow_every = 3,
        .grow = [&](Communicator& now) { return now.context() == first.context() ? whole : now; }};
    reports[rank] = run_elastic(members, options, [&](Communicator&, std::uint64_t step) {
      std::vector<Values> gradients = gradients_of(static_cast<int>(rank), step);
      synchronizer.step(spans_of(gradients));
      apply_updates(gradients, weights[rank]);
      steps[rank] += 1;
    });
  });
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{8, 8, 5}));
  EXPECT_EQ(reports[0].joined, 1);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

// ---------------------------------------------------------------- in simulation

struct Loss {
  std::vector<std::exception_ptr> errors;
  std::vector<Ended> ended;
  std::vector<std::uint64_t> completed;
};
Loss lose(int ranks, const SimDeath& death, const ElasticOptions& given, const SynchronizerOptions& synchronizing) {
  Loss loss;
  loss.ended.resize(static_cast<std::size_t>(ranks));
  loss.completed.resize(static_cast<std::size_t>(ranks));
  SimWorld world({.ranks = ranks, .profile = {}, .faults = {.deaths = {death}}, .network = {}});
  loss.errors = world.try_run([&](Communicator& whole) -> Task<> {
    const auto rank = static_cast<std::size_t>(whole.rank());
    Communicator current = whole;
    Ended& ended = loss.ended[rank];
    ended.weights = zeros();
    Task<Synchronizer> making =
        Synchronizer::await_make(current, parameters(), parse_recipe("topk:5%|dense_below:50"), synchronizing);
    Synchronizer synchronizer = co_await making;
    ElasticOptions options = given;
    options.synchronizer = &synchronizer;
    options.arrays = bytes_of(ended.weights);
    options.agree.deadline_seconds = 1;
    const ElasticProgram step = [&](Communicator&, std::uint64_t number) -> Task<> {
      std::vector<Values> gradients = gradients_of(static_cast<int>(rank), number);
      const std::vector<std::span<float>> spans = spans_of(gradients);
      Task<> stepping = synchronizer.await_step(spans);
      co_await stepping;
      apply_updates(gradients, ended.weights);
      loss.completed[rank] = number + 1;
    };
    Task<ElasticReport> running = await_run_elastic(current, options, step);
    ended.report = co_await running;
  });
  return loss;
}

TEST(Elastic, TooFewRanksStopTogether) {
  const Loss loss = lose(3, {.rank = 1, .after_messages = 60}, {.steps = 50, .least_ranks = 3}, {.undo = true});
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(kind_of(loss.errors[rank]), "peer_failed");
    EXPECT_NE(message_of(loss.errors[rank]).find("2 ranks are left, and least_ranks is 3"), std::string::npos);
  }
  EXPECT_GT(loss.completed[0], 2u);
  EXPECT_EQ(loss.ended[0].weights, loss.ended[2].weights);
}

TEST(Elastic, ReportsTheNormThatTheLostHadTold) {
  const SynchronizerOptions options{.replica_check_every = 2, .residual_norms = true, .undo = true};
  const Loss loss = lose(3, {.rank = 1, .after_messages = 80}, {.steps = 30}, options);
  for (const std::size_t rank : {0u, 2u}) {
    ASSERT_EQ(message_of(loss.errors[rank]), "");
    ASSERT_EQ(loss.ended[rank].report.lost.size(), 1u);
    const auto& residual = loss.ended[rank].report.lost[0].residual;
    ASSERT_TRUE(residual);
    EXPECT_GT(residual->norm, 0);
    EXPECT_GT(residual->step, 0u);
  }
}

TEST(Elastic, WantsOptionsThatGoTogether) {
  run_threads(1, [](Communicator& communicator) {
    const auto nothing = [](Communicator&, std::uint64_t) {};
    EXPECT_THROW(run_elastic(communicator, {.steps = 1, .least_ranks = 0}, nothing), Error);
    EXPECT_THROW(run_elastic(communicator, {.steps = 1, .most_tries = 0}, nothing), Error);
    EXPECT_THROW(run_elastic(communicator, {.steps = 1, .grow_every = 1}, nothing), Error);
    const auto await_grow = [](Communicator& members) -> Task<Communicator> { co_return members; };
    EXPECT_THROW(run_elastic(communicator, {.steps = 1, .grow_every = 1, .await_grow = await_grow}, nothing), Error);
    Synchronizer synchronizer = Synchronizer::make(communicator, parameters(), parse_recipe("dense"), {.undo = true});
    Synchronizer forgetful = Synchronizer::make(communicator, parameters(), parse_recipe("dense"),
                                                {.first_channel = synchronizer.end_channel()});
    EXPECT_THROW(run_elastic(communicator, {.steps = 1, .synchronizer = &forgetful}, nothing), Error);
    // A step that is none of the synchronizer's.
    EXPECT_THROW(run_elastic(communicator, {.steps = 1, .synchronizer = &synchronizer}, nothing), Error);
  });
}

// ---------------------------------------------------------------- moving

TEST(Moving, WantsWhatIsKept) {
  run_threads(1, [](Communicator& communicator) {
    for (const bool undo : {false, true}) {
      Synchronizer synchronizer = Synchronizer::make(communicator, parameters(), parse_recipe(kRecipe), {.undo = undo});
      for (std::uint64_t step = 0; step < 3; ++step) {
        std::vector<Values> gradients = gradients_of(0, step);
        synchronizer.step(spans_of(gradients));
      }
      EXPECT_EQ(synchronizer.completed_steps(), 3u);
      EXPECT_THROW(synchronizer.move_to(communicator, 4), Error);
      EXPECT_THROW(synchronizer.move_to(communicator, 0), Error);
      const Values residual = copy_of(synchronizer.residual(0));
      synchronizer.move_to(communicator, 3);
      EXPECT_EQ(copy_of(synchronizer.residual(0)), residual);
      if (!undo) {
        EXPECT_THROW(synchronizer.move_to(communicator, 2), Error);
      }
    }
  });
}

TEST(Moving, UndoesTheLastStepAndTheOneThatIsBegun) {
  for (const bool has_begun : {false, true}) {
    run_threads(1, [&](Communicator& communicator) {
      Synchronizer synchronizer = Synchronizer::make(communicator, parameters(), parse_recipe(kRecipe), {.undo = true});
      const auto step = [&](std::uint64_t number) {
        std::vector<Values> gradients = gradients_of(0, number);
        synchronizer.step(spans_of(gradients));
        return gradients;
      };
      step(0);
      const Buffer before = synchronizer.save_state();
      const std::vector<Values> first = step(1);
      if (has_begun) synchronizer.start(0, std::span<const float>(gradients_of(0, 2)[0]));
      Communicator other = communicator.split(0);
      synchronizer.move_to(other, 1);
      const Buffer after = synchronizer.save_state();
      EXPECT_TRUE(std::ranges::equal(before.bytes(), after.bytes()));
      EXPECT_EQ(synchronizer.steps(), 1u);
      EXPECT_EQ(step(1), first);
    });
  }
}

TEST(Moving, OverlappingStepsAreRefused) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer =
        Synchronizer::make(communicator, parameters(), parse_recipe("dense"), {.fuse_below = 0, .undo = true});
    const std::vector<Values> gradients = gradients_of(0, 0);
    synchronizer.start(0, std::span<const float>(gradients[0]));
    synchronizer.end_step();
    synchronizer.finish(0);
    EXPECT_THROW(synchronizer.start(0, std::span<const float>(gradients[0])), Error);
    synchronizer.finish(1);
    synchronizer.finish(2);
    synchronizer.start(0, std::span<const float>(gradients[0]));
    synchronizer.end_step();
    for (ParameterId id = 0; id < 3; ++id) synchronizer.finish(id);
  });
}

// Two ranks train, a third one comes: on a communicator that all three have from the beginning.
TEST(Moving, NewcomersTakeOverWhatAllHaveInCommonAndHoldNothingBack) {
  for (const char* text : {"topk:5%|dense_below:50|aggregate:sum", "topk:5%|dense_below:50|outer:nesterov",
                           "spardl:5%|dense_below:50", "powersgd:1|dense_below:50"}) {
    const std::vector<Parameter> registered = {{"weight", 200, Role::hidden, 10}, {"bias", 6}, {"norm", 3}};
    const Recipe recipe = parse_recipe(text);
    std::vector<std::vector<Values>> updates(3);
    std::vector<std::array<Values, 2>> residuals(3);
    SimWorld world({.ranks = 3, .profile = {}, .faults = {}, .network = {}});
    const SynchronizerOptions options{.reproducible = true, .replica_check_every = 2, .undo = true};
    world.run([&](Communicator& whole) -> Task<> {
      const auto rank = static_cast<std::size_t>(whole.rank());
      const bool is_new = rank == 2;
      Request<Communicator> splitting = whole.isplit(is_new ? 1 : 0);
      Communicator old = co_await splitting;
      std::optional<Synchronizer> synchronizer;
      const auto step = [&](std::uint64_t number) -> Task<> {
        std::vector<Values> gradients = gradients_of(static_cast<int>(rank), number);
        const std::vector<std::span<float>> spans = spans_of(gradients);
        Task<> stepping = synchronizer->await_step(spans);
        co_await stepping;
        updates[rank] = gradients;
      };
      if (is_new) {
        Task<Synchronizer> joining = Synchronizer::await_join(whole, 1, registered, recipe, options);
        synchronizer.emplace(co_await joining);
        EXPECT_EQ(synchronizer->completed_steps(), 3u);
      } else {
        Task<Synchronizer> making = Synchronizer::await_make(old, registered, recipe, options);
        synchronizer.emplace(co_await making);
        for (std::uint64_t number = 0; number < 3; ++number) {
          Task<> stepping = step(number);
          co_await stepping;
        }
        residuals[rank][0] = copy_of(synchronizer->residual(0));
        Task<> welcoming = synchronizer->await_welcome(whole, 1);
        co_await welcoming;
        Task<> moving = synchronizer->await_move_to(whole, 3);
        co_await moving;
      }
      residuals[rank][1] = copy_of(synchronizer->residual(0));
      EXPECT_EQ(synchronizer->steps(), 3u);
      for (std::uint64_t number = 3; number < 7; ++number) {
        Task<> stepping = step(number);
        co_await stepping;
      }
    });
    EXPECT_EQ(updates[0], updates[1]) << text;
    EXPECT_EQ(updates[0], updates[2]) << text;
    EXPECT_EQ(residuals[2][1], Values(200, 0.0f)) << text;
    const float factor = recipe.aggregate == Aggregate::sum ? 1.0f : 1.5f;
    for (Values& values : std::array{std::ref(residuals[0][0]), std::ref(residuals[1][0])}) {
      for (float& value : values) value *= factor;
    }
    EXPECT_EQ(residuals[0][0], residuals[0][1]) << text;
    EXPECT_EQ(residuals[1][0], residuals[1][1]) << text;
  }
}

TEST(Moving, NewcomersThatRegisterSomethingElseAreToldSo) {
  SimWorld world({.ranks = 2, .profile = {}, .faults = {}, .network = {}});
  const auto errors = world.try_run([&](Communicator& whole) -> Task<> {
    Request<Communicator> splitting = whole.isplit(whole.rank());
    Communicator alone = co_await splitting;
    if (whole.rank() == 1) {
      Task<Synchronizer> joining = Synchronizer::await_join(whole, 1, {{"weight", 3}}, parse_recipe("dense"));
      co_await joining;
    }
    Task<Synchronizer> making = Synchronizer::await_make(alone, {{"weight", 4}}, parse_recipe("dense"));
    Synchronizer synchronizer = co_await making;
    Task<> welcoming = synchronizer.await_welcome(whole, 1);
    co_await welcoming;
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_EQ(kind_of(error), "mismatch");
    EXPECT_NE(message_of(error).find("weight of 4 values"), std::string::npos);
  }
}

}  // namespace
}  // namespace tulle::gradient
