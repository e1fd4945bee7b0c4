// Trainings with a parameter server, without torch.
#include "nn/server_session.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/error_of.hpp"
#include "base/file_lock.hpp"
#include "base/temporary_directory.hpp"
#include "base/torn_file.hpp"
#include "comm_tcp/processes.hpp"
#include "nn/linear_learner.hpp"
#include "nn/session.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/server/reception.hpp"
#include "tulle/server/worker.hpp"

namespace tulle::nn {
namespace {

using testing::error_of;
using testing::LinearLearner;
using testing::TemporaryDirectory;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// The designs of 3LC's Table 1.
const std::vector<std::string> kDesigns = {"dense",   "int8",   "three_value_stochastic", "one_bit",
                                           "sparse5", "local2", "three_lc:s=1.00",        "three_lc:s=1.75"};

TrainerOptions exact_steps(int workers, const std::string& recipe) {
  TrainerOptions options{.recipe = gradient::parse_recipe(recipe), .rate = 0.25, .scale_rate = false};
  options.batch = static_cast<std::uint32_t>(8 / workers);
  options.steps_of_epoch = 4;
  options.server = {.servers = 1, .deadline_seconds = 60};
  return options;
}

/// What a job leaves behind.
struct Trained {
  std::vector<std::vector<float>> weights;  ///< by worker
  TrainResult result;                       ///< of rank 0
};

using Prepare = std::function<void(LinearLearner& learner, int worker)>;

Trained trained(int workers, const TrainerOptions& options, const Prepare& prepare = {}) {
  Trained done{.weights = std::vector<std::vector<float>>(static_cast<std::size_t>(workers)), .result = {}};
  const int servers = options.server.servers;
  run_threads(servers + workers, [&](Communicator& communicator) {
    LinearLearner learner;
    const int worker = communicator.rank() - servers;
    if (prepare && worker >= 0) prepare(learner, worker);
    TrainResult result = ServerSession(communicator, learner, options).train();
    if (worker >= 0) done.weights[static_cast<std::size_t>(worker)] = learner.all();
    if (communicator.rank() == 0) done.result = std::move(result);
  });
  return done;
}

std::vector<float> trained_locally(const TrainerOptions& options) {
  std::vector<float> weights;
  run_threads(1, [&](Communicator& communicator) {
    LinearLearner learner;
    Session(communicator, learner, options).train();
    weights = learner.all();
  });
  return weights;
}

TEST(ServerSession, OneWorkerWithoutCompressionIsLocalTrainingBitForBit) {
  for (const int servers : {1, 2}) {
    for (const bool overlap : {true, false}) {
      TrainerOptions options = exact_steps(1, "dense");
      options.epochs = 3;
      options.rate = 0.07;
      options.optimizer = {.momentum = 0.9, .weight_decay = 1e-3};
      options.schedule = {.schedule = Schedule::cosine, .warm_up_epochs = 1};
      options.server.servers = servers;
      options.overlap = overlap;
      EXPECT_EQ(trained(1, options).weights[0], trained_locally(options)) << servers << " servers";
    }
  }
}

TEST(ServerSession, WorkersAreOneProcessWithTheWholeBatchBitForBit) {
  const std::vector<float> alone = trained_locally(exact_steps(1, "dense"));
  EXPECT_NE(alone, std::vector<float>(alone.size()));
  for (const int workers : {2, 4}) {
    for (const std::vector<float>& weights : trained(workers, exact_steps(workers, "dense")).weights) {
      EXPECT_EQ(weights, alone) << workers;
    }
  }
}

TEST(ServerSession, EveryDesignLeavesAllWorkersWithTheSameWeightsAndTellsOfEachEpoch) {
  for (const std::string& design : kDesigns) {
    TrainerOptions options = exact_steps(2, design + (design.starts_with("sparse") ? "|dense_below:0" : ""));
    options.epochs = 2;
    options.rate = 0.02;
    std::vector<int> told;
    options.on_epoch = [&](const EpochMetrics& metrics) { told.push_back(metrics.epoch); };
    std::uint64_t last_step = 0;
    options.on_step = [&](std::uint64_t done, std::uint64_t) { last_step = done; };
    const Trained done = trained(2, options);
    EXPECT_EQ(done.weights[0], done.weights[1]) << design;
    EXPECT_NE(done.weights[0], std::vector<float>(done.weights[0].size())) << design;
    EXPECT_EQ(told, (std::vector<int>{1, 2})) << design;
    EXPECT_EQ(last_step, 8u) << design;
    ASSERT_EQ(done.result.epochs.size(), 2u) << design;
    const EpochMetrics& last = done.result.epochs.back();
    EXPECT_EQ(last.pushed, design == "local2" ? 16 : 32) << design;  // 2 workers, 2 parameters, 8 steps
    EXPECT_EQ(last.dropped, 0) << design;
    EXPECT_GT(last.bytes_sent, 0) << design;
    EXPECT_GT(last.bytes_received, 0) << design;
    EXPECT_EQ(last.held_out.samples, 10) << design;  // each by one worker
    EXPECT_GT(last.loss, 0) << design;
  }
}

TEST(ServerSession, AWeightIsPulledJustBeforeItIsUsed) {
  TrainerOptions options = exact_steps(1, "dense");
  std::vector<std::vector<float>> at_start, at_use;
  run_threads(2, [&](Communicator& communicator) {
    LinearLearner learner;
    ServerSession(communicator, learner, options).train();
    if (communicator.rank() == 1) at_start = learner.at_start;
    if (communicator.rank() == 1) at_use = learner.at_use;
  });
  ASSERT_EQ(at_use.size(), 4u);
  for (std::size_t step = 1; step < 4; ++step) {
    EXPECT_EQ(at_start[step], at_use[step - 1]);
    EXPECT_NE(at_use[step], at_start[step]);
  }
}

TEST(ServerSession, ALateWorkersPushesAreDroppedAndCountedAndItGoesOnWithTheOthers) {
  TrainerOptions options = exact_steps(2, "three_lc");
  options.server.backup = 1;
  std::latch is_in_first_step(1), is_other_done(1);
  int steps_of_late = 0;
  Trained done{.weights = std::vector<std::vector<float>>(2), .result = {}};
  run_threads(3, [&](Communicator& communicator) {
    LinearLearner learner;
    if (communicator.rank() == 1) learner.before_back = [&](int) { is_in_first_step.wait(); };
    if (communicator.rank() == 2) {
      learner.before_back = [&](int step) {
        if (step == 1) is_in_first_step.count_down();
        is_other_done.wait();
      };
    }
    TrainResult result = ServerSession(communicator, learner, options).train();
    if (communicator.rank() == 0) done.result = std::move(result);
    if (communicator.rank() > 0) done.weights[static_cast<std::size_t>(communicator.rank() - 1)] = learner.all();
    if (communicator.rank() == 1) is_other_done.count_down();
    if (communicator.rank() == 2) steps_of_late = learner.steps;
  });
  EXPECT_EQ(steps_of_late, 2);  // its first was of a model that is long gone; the second finds the last one
  EXPECT_EQ(done.weights[0], done.weights[1]);  // and gets it
  ASSERT_EQ(done.result.epochs.size(), 1u);
  EXPECT_EQ(done.result.epochs[0].dropped, 2);  // of two parameters
  EXPECT_EQ(done.result.epochs[0].pushed, 8 + 2);
  EXPECT_EQ(done.result.epochs[0].workers, 2);
}

TEST(ServerSession, AWorkerThatFailsIsNamedAndTheOthersGoOn) {
  TrainerOptions options = exact_steps(4, "three_lc");
  options.epochs = 3;
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  std::mutex mutex;
  std::condition_variable changed;
  int told = 0;
  options.on_epoch = [&](const EpochMetrics& metrics) {
    const std::lock_guard lock(mutex);
    told = metrics.epoch;
    changed.notify_all();
  };
  TrainResult result;
  std::vector<int> steps(4);
  const std::string error = error_of([&] {
    run_threads(5, [&](Communicator& communicator) {
      LinearLearner learner;
      const int worker = communicator.rank() - 1;
      learner.fails_at = worker == 2 ? 6 : 0;
      learner.before_back = [&](int step) {
        if (step != 9) return;  // the second epoch is told without the one that is gone, before the third is over
        std::unique_lock lock(mutex);
        EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return told >= 2; }));
      };
      TrainResult mine = ServerSession(communicator, learner, options).train();
      if (worker < 0) result = std::move(mine);
      if (worker >= 0) steps[static_cast<std::size_t>(worker)] = learner.steps;
    });
  });
  EXPECT_TRUE(contains(error, "no more")) << error;
  EXPECT_EQ(steps, (std::vector<int>{12, 12, 0, 12}));
  ASSERT_EQ(result.losses.size(), 1u);
  EXPECT_TRUE(contains(result.losses[0], "rank 3: no more")) << result.losses[0];
  ASSERT_FALSE(messages.empty());
  EXPECT_TRUE(contains(messages.front(), "the worker of rank 3 is lost")) << messages.front();
  ASSERT_EQ(result.epochs.size(), 3u);
  EXPECT_EQ(result.epochs[0].workers, 4);
  EXPECT_EQ(result.epochs[1].workers, 3);
}

TEST(ServerSession, OnTcpAKilledWorkerIsNamedAndTheJobGoesOn) {
  const testing::TemporaryDirectory directory;
  const auto body = [&](int rank) -> std::string {
    const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = rank, .size = 4});
    Communicator communicator = connect(*rendezvous);
    LinearLearner learner;
    if (rank == 2) {
      learner.before_back = [](int step) {
        if (step == 3) raise(SIGKILL);
      };
    }
    const TrainResult result = ServerSession(communicator, learner, exact_steps(4, "one_bit")).train();
    if (rank > 0) return learner.steps == 4 ? "" : "a worker did not go on";
    if (result.losses.size() != 1 || !contains(result.losses[0], "rank 2: ")) return "the victim was not named";
    return result.epochs.size() == 1 && result.epochs[0].workers == 2 ? "" : "the others did not report";
  };
  EXPECT_EQ(testing::run_processes(4, 60, body), (std::vector<int>{0, 0, -SIGKILL, 0}));
}

// Who was there from the beginning waits in its fourth step for the newcomer.
std::string run_with_newcomer(int rank, const std::string& directory) {
  const std::string port = directory + "/port", joined = directory + "/joined";
  const auto wait_for = [](const std::string& path) {
    while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  TrainerOptions options = exact_steps(2, "three_lc");
  options.epochs = 3;
  options.server.servers = 2;
  options.server.door = DoorOptions{.host = "127.0.0.1"};
  LinearLearner learner;
  std::optional<Communicator> communicator;
  if (rank < 4) {
    communicator = connect(*directory_rendezvous({.path = directory, .rank = rank, .size = 4}));
    options.on_message = [&](const std::string& message) {
      const std::size_t at = message.find("at port ");
      if (at == std::string::npos) return;
      std::ofstream(port + ".next") << message.substr(at + 8);
      std::filesystem::rename(port + ".next", port);
    };
    learner.before_back = [&](int step) {
      if (step == 4 && rank == 3) raise(SIGKILL);
      if (step == 4) wait_for(joined);
    };
  } else {
    wait_for(port);
    std::uint16_t number = 0;
    std::ifstream(port) >> number;
    const server::TakenPlace taken = server::take_place({.host = "127.0.0.1", .port = number});
    communicator = taken.communicator;
    options.server.place = taken.place;
    learner.before_back = [&](int) { std::ofstream(joined) << "\n"; };
  }
  const TrainResult result = ServerSession(*communicator, learner, options).train();
  if (rank > 1) {
    std::ofstream weights(fmt::format("{}/weights.{}", directory, rank));
    for (const float weight : learner.all()) weights << weight << ' ';
  }
  if (rank == 4) return learner.steps >= 9 && learner.steps < 12 ? "" : "a newcomer's number of steps is wrong";
  if (rank > 0) return "";
  if (result.losses.size() != 1 || !contains(result.losses[0], "rank 3: ")) return "the victim was not named";
  if (result.epochs.size() != 3 || result.epochs.back().workers != 2) return "the newcomer did not report";
  for (std::size_t i = 1; i < 3; ++i) {
    const bool grows = result.epochs[i].bytes_sent > result.epochs[i - 1].bytes_sent;
    if (!grows || result.epochs[i].pushed <= result.epochs[i - 1].pushed)
      return "what the dead worker sent is forgotten";
  }
  return "";
}

TEST(ServerSession, OnTcpANewProcessTakesAKilledWorkersPlace) {
  const testing::TemporaryDirectory directory;
  const auto body = [&](int rank) { return run_with_newcomer(rank, directory.path()); };
  ASSERT_EQ(testing::run_processes(5, 120, body), (std::vector<int>{0, 0, 0, -SIGKILL, 0}));
  const auto weights_of = [&](int rank) {
    std::ostringstream text;
    text << std::ifstream(fmt::format("{}/weights.{}", directory.path(), rank)).rdbuf();
    return text.str();
  };
  EXPECT_FALSE(weights_of(2).empty());
  EXPECT_EQ(weights_of(2), weights_of(4));
}

// Sentences have more words on one worker than on the other: only words that count alike give the whole batch's step.
TEST(ServerSession, PushesByTheirPredictionsAreOneProcessWithTheWholeBatch) {
  const auto prepare = [](LinearLearner& learner, int) { learner.is_uneven = true; };
  TrainerOptions options = exact_steps(1, "dense");
  const std::vector<float> whole = trained(1, options, prepare).weights[0];
  options = exact_steps(2, "dense");
  const auto distance = [&](const std::vector<float>& weights) {
    float largest = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) largest = std::max(largest, std::abs(weights[i] - whole[i]));
    return largest;
  };
  EXPECT_GT(distance(trained(2, options, prepare).weights[0]), 1e-3f);
  options.server.weighs_pushes = true;
  for (const bool overlap : {true, false}) {
    options.overlap = overlap;
    EXPECT_LT(distance(trained(2, options, prepare).weights[0]), 1e-5f) << overlap;
  }
}

TEST(ServerSession, PushesOfLocalStepsHaveWeightsToo) {
  const auto prepare = [](LinearLearner& learner, int) { learner.is_uneven = true; };
  TrainerOptions options = exact_steps(2, "local2");
  const std::vector<float> alike = trained(2, options, prepare).weights[0];
  options.server.weighs_pushes = true;
  const Trained weighed = trained(2, options, prepare);
  EXPECT_NE(weighed.weights[0], alike);
  EXPECT_EQ(weighed.weights[0], weighed.weights[1]);
}

// Long before workers would lose patience with it.
TEST(ServerSession, AServerThatCannotGoOnFromItsCheckpointTellsItsWorkersWhy) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "dense");
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  trained(2, options);
  std::ofstream(scratch.path("run.server.0-of-1")) << "something else";
  options.server.deadline_seconds = 30;
  const auto started = std::chrono::steady_clock::now();
  run_threads(3, [&](Communicator& communicator) {
    LinearLearner learner;
    const std::string error = error_of([&] { ServerSession(communicator, learner, options).train(); });
    EXPECT_TRUE(contains(error, "run.server.0-of-1")) << communicator.rank() << ": " << error;
  });
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

TEST(ServerSession, WhatACallbackOfTheServerThrowsIsWhatWorkersAreTold) {
  const auto started = std::chrono::steady_clock::now();
  run_threads(3, [&](Communicator& communicator) {
    LinearLearner learner;
    TrainerOptions options = exact_steps(2, "dense");
    options.epochs = 50;
    options.server.deadline_seconds = 30;
    options.on_epoch = [](const EpochMetrics&) { throw std::runtime_error("out of paper"); };
    std::string told;
    try {
      ServerSession(communicator, learner, options).train();
    } catch (const std::exception& error) {
      told = error.what();
    }
    EXPECT_TRUE(contains(told, "out of paper")) << communicator.rank() << ": " << told;
  });
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

TEST(ServerSession, AJobThatLostAllItsWorkersGoesOnFromItsCheckpointBitForBit) {
  for (const char* const recipe : {"dense", "three_lc:s=1.75", "sparse5|dense_below:0", "three_value_stochastic"}) {
    for (const int servers : {1, 2}) {
      const TemporaryDirectory scratch;
      TrainerOptions options = exact_steps(2, recipe);
      options.epochs = 3;
      options.rate = 0.02;
      options.optimizer.momentum = 0.5;
      options.server.servers = servers;
      const Trained whole = trained(2, options);
      options.checkpoint = {.path = scratch.path("run"), .resume = true, .steps = 3};
      std::string told;  // what rank 0 says, a server; the job ends with the cause
      const auto run_rank = [&](Communicator& communicator) {
        LinearLearner learner;
        if (communicator.rank() >= servers) learner.fails_at = 8;
        ServerSession(communicator, learner, options).train();
      };
      const std::string error = error_of([&] {
        run_threads(servers + 2, [&](Communicator& communicator) {
          if (communicator.rank() > 0) return run_rank(communicator);
          told = error_of([&] { run_rank(communicator); });
        });
      });
      EXPECT_TRUE(contains(told, "every worker was lost")) << told;
      EXPECT_TRUE(contains(error, "no more")) << error;
      int steps = 0;
      run_threads(servers + 2, [&](Communicator& communicator) {
        LinearLearner learner;
        const TrainResult result = ServerSession(communicator, learner, options).train();
        EXPECT_EQ(result.was_resumed, communicator.rank() < servers);
        if (communicator.rank() != servers) return;
        EXPECT_EQ(learner.all(), whole.weights[0]) << recipe << ", " << servers << " servers";
        steps = learner.steps;
      });
      EXPECT_EQ(steps, 12 - 6);
    }
  }
}

TEST(ServerSession, AWorkerWithoutItsStateGoesOnAndSaysSo) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "three_lc");
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  trained(2, options);
  std::filesystem::remove(scratch.path("run.worker.1-of-2"));
  options.epochs = 2;
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  const Trained done = trained(2, options);
  EXPECT_EQ(done.weights[0], done.weights[1]);
  ASSERT_EQ(done.result.epochs.size(), 1u);
  EXPECT_EQ(done.result.epochs[0].epoch, 2);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_TRUE(contains(messages[0], "epoch 2, step 0 of it")) << messages[0];
  EXPECT_TRUE(contains(messages[1], "worker 1: ") && contains(messages[1], "is not there")) << messages[1];
}

TEST(ServerSession, AStopIsHeardByAllAndTheRunGoesOnLater) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "dense");
  options.epochs = 1000;
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  std::atomic<bool> stops = false;
  TrainerOptions stopping = options;
  stopping.on_epoch = [&](const EpochMetrics& metrics) { stops = metrics.epoch >= 2; };
  stopping.stop_requested = [&] { return stops.load(); };
  const Trained first = trained(2, stopping);
  EXPECT_TRUE(first.result.was_stopped);
  ASSERT_GE(first.result.epochs.size(), 2u);
  EXPECT_LT(first.result.epochs.size(), 1000u);
  options.epochs = first.result.epochs.back().epoch + 2;
  const Trained second = trained(2, options);
  EXPECT_FALSE(second.result.was_stopped);
  ASSERT_FALSE(second.result.epochs.empty());
  EXPECT_EQ(second.result.epochs.back().epoch, options.epochs);
  EXPECT_EQ(second.weights[0], second.weights[1]);
}

// With a backup worker parameters are of different steps when workers are told to stop; here one is two steps ahead.
TEST(ServerSession, WhatAStoppedJobWithBackupWorkersLeftIsGoneOnFrom) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "dense");
  options.epochs = 2;
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  options.server.backup = 1;
  const std::vector<gradient::Parameter> parameters = LinearLearner().parameters();
  run_threads(3, [&](Communicator& communicator) {
    const server::Options agreed{.backup = 1, .push = options.recipe, .seed = options.seed};
    if (communicator.rank() == 0) {
      server::Server server = server::Server::make(communicator, parameters, agreed, {});
      server.run();
      EXPECT_EQ(server.version(0), 1u);
      EXPECT_EQ(server.version(1), 3u);
      return server.save_checkpoint(scratch.path("run.server"));
    }
    server::Worker worker = server::Worker::make(communicator, parameters, agreed);
    LinearLearner learner;
    worker.join(std::vector<std::span<float>>{learner.weights(0), learner.weights(1)});
    const auto step = [&](gradient::ParameterId id) {
      worker.push(id, std::vector<float>(parameters[id].size, 0.5f));
      worker.pull(id, learner.weights(id));
    };
    for (const gradient::ParameterId id : {1u, 0u, 1u, 1u}) {
      if (communicator.rank() == 1) step(id);
    }
    worker.leave();
  });
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  const Trained done = trained(2, options);
  ASSERT_FALSE(messages.empty());
  EXPECT_TRUE(contains(messages[0], "epoch 1, step 1 of it")) << messages[0];
  ASSERT_EQ(done.result.epochs.size(), 2u);
  EXPECT_EQ(done.weights[0], done.weights[1]);
  options.server.backup = 0;
  options.epochs = 3;
  trained(2, options);  // all are of one step at the end
}

TEST(ServerSession, WhereTheNumberOfServersReturnsTheNewestCheckpointIsTaken) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "three_lc");
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  options.rate = 0.02;
  for (const int servers : {1, 2, 1}) {
    std::vector<std::string> messages;
    options.on_message = [&](const std::string& message) { messages.push_back(message); };
    options.server.servers = servers;
    trained(2, options);
    ASSERT_EQ(messages.size(), 1u);
    if (options.epochs > 1) {
      EXPECT_TRUE(contains(messages[0], fmt::format("epoch {}, step 0 of it", options.epochs))) << messages[0];
    }
    options.epochs += 1;
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run.server.0-of-2")));
}

// One server has written its last file when the job is killed, the other has not.
TEST(ServerSession, AJobThatIsKilledWhileItSavesGoesOnFromTheStepThatAllServersHave) {
  for (const bool is_between : {false, true}) {  // also while a file is about to take the place of another
    const TemporaryDirectory scratch;
    TrainerOptions options = exact_steps(2, "three_lc");
    options.epochs = 2;
    options.rate = 0.02;
    options.server.servers = 2;
    const Trained whole = trained(2, options);
    options.epochs = 1;
    options.checkpoint = {.path = scratch.path("run"), .resume = true, .steps = 2};
    trained(2, options);
    const std::string torn = scratch.path("run.server.1-of-2");
    std::filesystem::remove(torn);
    if (!is_between) std::filesystem::rename(torn + ".before", torn);
    options.epochs = 2;
    std::vector<std::string> messages;
    options.on_message = [&](const std::string& message) { messages.push_back(message); };
    EXPECT_EQ(trained(2, options).weights, whole.weights);
    ASSERT_EQ(messages.size(), 2u);
    EXPECT_TRUE(contains(messages[0], "goes on from an older checkpoint: ")) << messages[0];
    EXPECT_TRUE(contains(messages[0], "of which not all servers have a file")) << messages[0];
    EXPECT_TRUE(contains(messages[1], "epoch 1, step 2 of it")) << messages[1];
    messages.clear();
    trained(2, options);
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_TRUE(contains(messages[0], "this run is over, after 8 steps")) << messages[0];
  }
}

TEST(ServerSession, WhereTheNewestFileOfAServerIsDamagedTheStepBeforeIsTakenAndTheReasonTold) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "three_lc");
  options.epochs = 2;
  options.rate = 0.02;
  options.server.servers = 2;
  const Trained whole = trained(2, options);
  options.epochs = 1;
  options.checkpoint = {.path = scratch.path("run"), .resume = true, .steps = 2};
  trained(2, options);
  testing::TornFile(scratch.path("run.server.0-of-2")).damage();
  options.epochs = 2;
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  EXPECT_EQ(trained(2, options).weights, whole.weights);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_TRUE(contains(messages[0], "run.server.0-of-2: ") && contains(messages[0], "damaged")) << messages[0];
  EXPECT_TRUE(contains(messages[1], "epoch 1, step 2 of it")) << messages[1];
}

TEST(ServerSession, AJobThatIsKilledInItsFirstCheckpointStartsFromTheBeginning) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "three_lc");
  options.server.servers = 2;
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  // Whole on one server, half on the other, and in its place on none.
  std::vector<float> whole;
  for (const bool is_killed : {false, true}) {
    std::vector<std::string> messages;
    options.on_message = [&](const std::string& message) { messages.push_back(message); };
    const Trained done = trained(2, options);
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_TRUE(contains(messages[0], "there is no checkpoint: starts from the beginning")) << messages[0];
    if (is_killed) {
      EXPECT_EQ(done.weights[0], whole);
    }
    whole = done.weights[0];
    for (const auto& [server, killed] :
         {std::pair(0, testing::Killed::written), std::pair(1, testing::Killed::writing)}) {
      testing::TornFile file(scratch.path(fmt::format("run.server.{}-of-2", server)));
      file.forget_old();
      file.leave(killed);
    }
    for (const int worker : {0, 1}) std::filesystem::remove(scratch.path(fmt::format("run.worker.{}-of-2", worker)));
  }
}

TEST(ServerSession, FilesOfTwoRunsOfEqualStepsAreNotMixed) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "three_lc");
  options.server.servers = 2;
  options.checkpoint = {.path = scratch.path("run")};
  trained(2, options);
  const std::string mine = testing::contents_of(scratch.path("run.server.0-of-2"));
  const std::string worker = testing::contents_of(scratch.path("run.worker.0-of-2"));
  options.rate = 0.5;
  trained(2, options);
  const auto put = [&](const char* file, const std::string& text) {
    std::filesystem::remove(scratch.path(file) + ".before");
    std::ofstream(scratch.path(file), std::ios::binary) << text;
  };
  // What a worker had not delivered is of no use to another run's model.
  put("run.worker.0-of-2", worker);
  options.epochs = 2;
  options.checkpoint.resume = true;
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  trained(2, options);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_TRUE(contains(messages[1], "worker 0: ") && contains(messages[1], "of run ")) << messages[1];
  put("run.server.0-of-2", mine);
  const std::string error = error_of([&] { trained(2, options); });
  EXPECT_TRUE(contains(error, "run.server: servers' files are of several runs: ")) << error;
}

TEST(ServerSession, ASecondJobWithItsPathEndsAtOnceOnAllRanks) {
  const TemporaryDirectory scratch;
  TrainerOptions options = exact_steps(2, "dense");
  options.server.servers = 2;
  options.checkpoint = {.path = scratch.path("run")};
  const FileLock other_job(scratch.path("run"));
  std::mutex mutex;
  std::vector<std::string> errors;
  run_threads(4, [&](Communicator& communicator) {
    LinearLearner learner;
    const std::string error = error_of([&] { ServerSession(communicator, learner, options).train(); });
    const std::lock_guard lock(mutex);
    errors.push_back(error);
  });
  for (const std::string& error : errors) EXPECT_TRUE(contains(error, "another job writes this checkpoint")) << error;
}

TEST(ServerSession, ACheckpointThatCannotBeWrittenIsToldAndTheJobGoesOn) {
  const TemporaryDirectory scratch;
  std::filesystem::create_directory(scratch.path("disk"));
  TrainerOptions options = exact_steps(1, "dense");
  options.server.servers = 2;
  options.checkpoint = {.path = scratch.path("disk/run"), .steps = 1};
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  const Trained done = trained(1, options, [&](LinearLearner& learner, int) {
    learner.before_back = [&](int step) {
      if (step == 2) std::filesystem::remove_all(scratch.path("disk"));
    };
  });
  EXPECT_EQ(done.result.epochs.size(), 1u);
  EXPECT_FALSE(done.result.checkpoint_error.empty());
  for (const char* const who : {"server 0: ", "server 1: ", "worker 0: "}) {
    const auto tells = [&](const std::string& message) {
      return contains(message, who) && contains(message, "the checkpoint was not written");
    };
    EXPECT_TRUE(std::ranges::any_of(messages, tells)) << who;
  }
}

// Such as a process that comes later with other flags: it would take other samples than its place has.
TEST(ServerSession, AWorkerOfAnotherJobIsRefusedWithWhatDiffers) {
  const auto refusal_of = [](auto change) {
    std::string told;
    run_threads(3, [&](Communicator& communicator) {
      LinearLearner learner;
      TrainerOptions options = exact_steps(2, "dense");
      if (communicator.rank() == 2) change(options);
      const std::string error = error_of([&] { ServerSession(communicator, learner, options).train(); });
      if (communicator.rank() == 2) told = error;
      EXPECT_TRUE(communicator.rank() == 2 || error == "no error") << error;
    });
    return told;
  };
  EXPECT_EQ(refusal_of([](TrainerOptions&) {}), "no error");
  for (const std::string& told : {refusal_of([](TrainerOptions& options) { options.batch = 2; }),
                                  refusal_of([](TrainerOptions& options) { options.steps_of_epoch = 3; }),
                                  refusal_of([](TrainerOptions& options) { options.epochs = 2; }),
                                  refusal_of([](TrainerOptions& options) { options.server.data = "others"; })}) {
    EXPECT_TRUE(contains(told, "differ: the server has 'batches of 4, 4 steps of an epoch, 1 epochs")) << told;
  }
}

TEST(ServerSession, StalenessLetsWorkersGoOnAndAllStepsAreTaken) {
  TrainerOptions options = exact_steps(2, "dense");
  options.epochs = 3;
  options.rate = 0.01;
  options.server.staleness = 2;
  const Trained done = trained(2, options);
  ASSERT_EQ(done.result.epochs.size(), 3u);
  EXPECT_EQ(done.result.epochs.back().steps, 12u);
  EXPECT_EQ(done.result.epochs.back().pushed, 48);
  EXPECT_EQ(done.result.epochs.back().dropped, 0);
}

TEST(ServerSession, WhatDoesNotGoWithAServerIsNamed) {
  run_threads(2, [](Communicator& communicator) {
    LinearLearner learner;
    const auto told = [&](auto change) {
      TrainerOptions options = exact_steps(1, "dense");
      change(options);
      return error_of([&] { const ServerSession session(communicator, learner, options); });
    };
    const auto expect = [&](auto change, const std::string& words) {
      EXPECT_TRUE(contains(told(change), words)) << told(change) << " instead of " << words;
    };
    expect([](TrainerOptions& options) { options.optimizer.kind = OptimizerKind::adamw; }, "adamw");
    expect([](TrainerOptions& options) { options.optimizer = {.momentum = 0.5, .nesterov = true}; }, "nesterov");
    expect([](TrainerOptions& options) { options.patience = 2; }, "patience");
    expect([](TrainerOptions& options) { options.server.servers = 2; }, "and a worker");
    expect([](TrainerOptions& options) { options.server.door = DoorOptions{}; }, "a door is for TCP");
    expect([](TrainerOptions& options) { options.server.servers = 3; }, "3 servers for 2 parameters");
    expect([](TrainerOptions& options) { options.server.backup = 1; }, "1 backup workers of 1");
    expect([](TrainerOptions& options) { options.recipe = gradient::parse_recipe("spardl:1%"); }, "spardl");
  });
}

}  // namespace
}  // namespace tulle::nn
