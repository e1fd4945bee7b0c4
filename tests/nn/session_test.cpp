// Trainings without torch: a linear model of small whole numbers, on which every sum is exact.
#include "nn/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error_of.hpp"
#include "base/file_lock.hpp"
#include "base/temporary_directory.hpp"
#include "base/torn_file.hpp"
#include "nn/linear_learner.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/threads.hpp"
#include "tulle/gradient/training_trace.hpp"

namespace tulle::nn {
namespace {

using testing::contents_of;
using testing::error_of;
using testing::Killed;
using testing::LinearLearner;
using testing::TemporaryDirectory;
using testing::TornFile;
using testing::two_ranks_killed;

TrainerOptions three_exact_steps(int ranks, const std::string& recipe) {
  return {.recipe = gradient::parse_recipe(recipe),
          .rate = 0.25,
          .scale_rate = false,
          .batch = static_cast<std::uint32_t>(8 / ranks),
          .steps_of_epoch = 3};
}

std::vector<float> trained(int ranks, const TrainerOptions& options, bool is_uneven = false) {
  std::vector<float> weights;
  run_threads(ranks, [&](Communicator& communicator) {
    LinearLearner learner;
    learner.is_uneven = is_uneven;
    Session(communicator, learner, options).train();
    if (communicator.rank() == 0) weights = learner.all();
  });
  return weights;
}

TEST(Session, RanksAtFullDensityAreOneProcessWithTheWholeBatchBitForBit) {
  const std::vector<float> alone = trained(1, three_exact_steps(1, "dense"));
  EXPECT_NE(alone, std::vector<float>(alone.size()));
  for (const char* const recipe : {"dense", "topk:100%|dense_below:0", "spardl:100%"}) {
    for (const int ranks : {2, 4, 8}) {
      EXPECT_EQ(trained(ranks, three_exact_steps(ranks, recipe)), alone) << recipe << " on " << ranks;
    }
  }
}

TEST(Session, SamplesWithMorePredictionsOnOneRankAreOneProcessWithTheWholeBatch) {
  const std::vector<float> alone = trained(1, three_exact_steps(1, "dense"), /*is_uneven=*/true);
  EXPECT_NE(alone, trained(1, three_exact_steps(1, "dense")));
  for (const char* const recipe : {"dense", "topk:100%|dense_below:0"}) {
    for (const int ranks : {2, 4, 8}) {
      const std::vector<float> weights = trained(ranks, three_exact_steps(ranks, recipe), /*is_uneven=*/true);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_NEAR(weights[i], alone[i], 1e-5) << recipe << " on " << ranks << ", " << i;
      }
    }
  }
}

// What each of three ranks is told where the options of rank 1 are changed.
std::vector<std::string> told_with_other_options_on_rank_1(const std::function<void(TrainerOptions&)>& change) {
  std::vector<std::string> told(3);
  run_threads(3, [&](Communicator& communicator) {
    TrainerOptions options = three_exact_steps(4, "dense");
    if (communicator.rank() == 1) change(options);
    LinearLearner learner;
    told[static_cast<std::size_t>(communicator.rank())] =
        error_of([&] { Session(communicator, learner, options).train(); });
  });
  return told;
}

TEST(Session, an_option_that_one_rank_has_otherwise_is_named_on_all_ranks_at_the_start) {
  using Change = std::function<void(TrainerOptions&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"rate is 0.25 on ranks 0, 2, is 0.5 on rank 1", [](TrainerOptions& options) { options.rate = 0.5; }},
      {"scale_rate is off", [](TrainerOptions& options) { options.scale_rate = true; }},
      {"momentum is 0 on", [](TrainerOptions& options) { options.optimizer.momentum = 0.9; }},
      {"optimizer is sgd on", [](TrainerOptions& options) { options.optimizer.kind = OptimizerKind::adamw; }},
      {"weight_decay is 0 on", [](TrainerOptions& options) { options.optimizer.weight_decay = 0.1; }},
      {"schedule is constant", [](TrainerOptions& options) { options.schedule.schedule = Schedule::cosine; }},
      {"warm_up_epochs is 0", [](TrainerOptions& options) { options.schedule.warm_up_epochs = 1; }},
      {"clip_norm is 0 on", [](TrainerOptions& options) { options.clip_norm = 1; }},
      {"batch is 2 on", [](TrainerOptions& options) { options.batch = 3; }},
      {"batch is 2 on", [](TrainerOptions& options) { options.batch = 1000; }},  // more than there are samples
      {"steps_of_epoch is 3", [](TrainerOptions& options) { options.steps_of_epoch = 2; }},
      {"epochs is 1 on", [](TrainerOptions& options) { options.epochs = 2; }},
      {"seed is 1 on", [](TrainerOptions& options) { options.seed = 2; }},
      {"patience is 0 on", [](TrainerOptions& options) { options.patience = 2; }},
      {"buffers is rank0", [](TrainerOptions& options) { options.buffers = Buffers::average; }},
      {"checkpoint is off on", [](TrainerOptions& options) { options.checkpoint.path = "run"; }},
      {"step_log is off on", [](TrainerOptions& options) { options.step_log.lines = "lines"; }},
      {"recipe is dense", [](TrainerOptions& options) { options.recipe = gradient::parse_recipe("topk:1%"); }},
      {"reproducible is true", [](TrainerOptions& options) { options.synchronizer.reproducible = false; }}};
  for (const auto& [words, change] : changes) {
    for (const std::string& told : told_with_other_options_on_rank_1(change)) {
      EXPECT_NE(told.find("ranks have different settings: " + words), told.npos) << words << ": " << told;
      EXPECT_NE(told.find("on rank 1"), told.npos) << told;
    }
  }
  for (const std::string& told : told_with_other_options_on_rank_1([](TrainerOptions&) {})) EXPECT_EQ(told, "no error");
}

TEST(Session, a_weight_that_one_rank_changes_by_itself_is_told_with_its_parameter_and_rank) {
  for (const char* const recipe : {"dense", "topk:10%|dense_below:0", "local2"}) {
    std::vector<std::string> told(3);
    run_threads(3, [&](Communicator& communicator) {
      TrainerOptions options = three_exact_steps(4, recipe);
      options.rate = 0.01;
      options.epochs = 3;
      options.synchronizer.weights_check_every = 2;
      LinearLearner learner;
      learner.before_back = [&](int step) {
        if (step == 4 && communicator.rank() == 2) learner.weights(1)[3] += 0.5f;
      };
      told[static_cast<std::size_t>(communicator.rank())] =
          error_of([&] { Session(communicator, learner, options).train(); });
    });
    const bool is_local =
        gradient::parse_recipe(recipe).every > 1;  // ranks' own steps are exchanged, whatever they are
    EXPECT_EQ(told[0] == "no error", is_local) << recipe << ": " << told[0];
    for (const std::string& words : told) {
      if (is_local) continue;
      EXPECT_NE(words.find("replicas differ: after "), words.npos) << words;
      EXPECT_NE(words.find("second is "), words.npos) << words;
      EXPECT_NE(words.find("on rank 2"), words.npos) << words;
    }
  }
}

// A checkpoint is written after every second step, and one rank in turn is late for it.
TEST(Session, waiting_before_a_checkpoint_is_part_of_the_time) {
  const TemporaryDirectory scratch;
  run_threads(4, [&](Communicator& communicator) {
    TrainerOptions options = three_exact_steps(4, "dense");
    options.steps_of_epoch = 8;
    options.checkpoint = {.path = scratch.path("run"), .seconds = 0};
    LinearLearner learner;
    learner.before_back = [&](int step) {
      const bool is_saved = step % 2 == 0, is_late = step / 2 % 4 == communicator.rank();
      if (is_saved && is_late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    };
    const TrainResult result = Session(communicator, learner, options).train();
    EXPECT_LE(result.epochs[0].exposed_seconds, result.epochs[0].seconds);
  });
}

TEST(Session, OverlapChangesTheOrderOfStartsAndNoBit) {
  for (const char* const recipe : {"dense", "topk:10%|dense_below:0", "redsync:20%|dense_below:0", "three_lc"}) {
    TrainerOptions options = three_exact_steps(4, recipe);
    options.epochs = 5;
    options.rate = 0.01;
    const std::vector<float> overlapped = trained(4, options);
    options.overlap = false;
    EXPECT_EQ(trained(4, options), overlapped) << recipe;
  }
}

TEST(Session, GradientsAreHandedOverFromTheLastLayerOn) {
  run_threads(2, [](Communicator& communicator) {
    LinearLearner learner;
    Session(communicator, learner, three_exact_steps(2, "dense")).train();
    EXPECT_EQ(learner.order, (std::vector<std::size_t>{1, 0, 1, 0, 1, 0}));
  });
}

// What the weights are when the forward pass begins, and when it uses them.
TEST(Session, AnUpdateIsAppliedJustBeforeItsParameterIsUsed) {
  for (const bool overlap : {true, false}) {
    run_threads(2, [&](Communicator& communicator) {
      LinearLearner learner;
      TrainerOptions options = three_exact_steps(2, "dense");
      options.overlap = overlap;
      Session(communicator, learner, options).train();
      ASSERT_EQ(learner.at_start.size(), 3u);
      ASSERT_EQ(learner.at_use.size(), 3u);
      for (std::size_t step = 1; step < 3; ++step) {
        EXPECT_NE(learner.at_use[step], learner.at_use[step - 1]);
        EXPECT_EQ(learner.at_start[step], learner.at_use[overlap ? step - 1 : step]);
      }
      EXPECT_NE(learner.all(), learner.at_use[2]);  // the last update is there when the epoch is over
    });
  }
}

TEST(Session, ALogHasALineForEachExchangeAndChangesNoBit) {
  for (const char* const recipe : {"topk:10%|dense_below:0", "local2"}) {
    const TemporaryDirectory scratch;
    TrainerOptions options = three_exact_steps(2, recipe);
    options.steps_of_epoch = 4;
    options.rate = 0.01;
    const std::vector<float> weights = trained(2, options);
    options.step_log = {.lines = scratch.path("steps"), .trace = scratch.path("trace")};
    EXPECT_EQ(trained(2, options), weights) << recipe;
    options.overlap = false;
    EXPECT_EQ(trained(2, options), weights) << recipe;  // appends
    std::ifstream file(scratch.path("steps"));
    int lines = 0;
    for (std::string line; std::getline(file, line); ++lines) EXPECT_NE(line.find("\"loss\":"), line.npos) << line;
    EXPECT_EQ(lines, 2 * (options.recipe.every == 1 ? 4 : 2)) << recipe;
    EXPECT_TRUE(std::filesystem::exists(scratch.path("trace")));
  }
}

TEST(Session, ATraceSaysWhatStepsComputeAfterTheFirst) {
  for (const double clip : {0.0, 1e6}) {
    TrainerOptions options = three_exact_steps(2, "dense");
    options.clip_norm = clip;
    const std::vector<float> unrecorded = trained(2, options);
    std::vector<gradient::TrainingTrace> traces;
    run_threads(2, [&](Communicator& communicator) {
      TrainerOptions mine = options;
      if (communicator.rank() == 0) mine.on_trace = [&](const auto& trace) { traces.push_back(trace); };
      LinearLearner learner;
      Session(communicator, learner, mine).train();
      EXPECT_EQ(learner.all(), unrecorded);
    });
    ASSERT_EQ(traces.size(), 1u);
    const gradient::TrainingTrace& trace = traces[0];
    EXPECT_DOUBLE_EQ(trace.forward_seconds, 0.5);
    EXPECT_EQ(trace.batch, 4);
    EXPECT_EQ(trace.overlap, clip == 0);
    ASSERT_EQ(trace.parameters.size(), 2u);
    EXPECT_EQ(trace.parameters[0].parameter.size, LinearLearner::kFirst);
    EXPECT_EQ(trace.parameters[1].parameter.role, gradient::Role::output);
    EXPECT_GT(trace.parameters[0].backward_seconds, 0);
    EXPECT_EQ(to_text(gradient::parse_training_trace(to_text(trace), "text")), to_text(trace));
  }
}

TEST(Session, WeightsThatDifferBecomeThoseOfTheFirstRank) {
  run_threads(3, [](Communicator& communicator) {
    LinearLearner learner(static_cast<float>(communicator.rank()) + 1);
    const Session session(communicator, learner, TrainerOptions{.batch = 2});
    EXPECT_EQ(learner.all(), std::vector<float>(learner.all().size(), 1.0f));
  });
}

TEST(Session, LocalStepsExchangeHowFarEachRankHasCome) {
  // Four local steps from zero and the mean of where they lead: by hand, rank by rank.
  TrainerOptions options = three_exact_steps(2, "local2:4");
  options.steps_of_epoch = 4;
  options.rate = 0.125;
  TrainerOptions alone = options;
  alone.recipe = gradient::parse_recipe("noop");
  std::vector<std::vector<float>> ends(2);
  run_threads(2, [&](Communicator& communicator) {
    LinearLearner learner;
    Session(communicator, learner, alone).train();
    ends[static_cast<std::size_t>(communicator.rank())] = learner.all();
  });
  EXPECT_NE(ends[0], ends[1]);
  const std::vector<float> together = trained(2, options);
  for (std::size_t i = 0; i < together.size(); ++i) EXPECT_NEAR(together[i], (ends[0][i] + ends[1][i]) / 2, 1e-6);
}

// Before the first exchange a rank's gradient is not averaged: it may be as long as one process allows.
TEST(Session, ALocalStepIsClippedAsThatOfOneProcess) {
  TrainerOptions options = three_exact_steps(2, "local2:4");
  options.steps_of_epoch = 2;
  options.clip_norm = 0.125;
  run_threads(2, [&](Communicator& communicator) {
    LinearLearner learner;
    Session(communicator, learner, options).train();
    double squares = 0;
    for (const float weight : learner.at_start[1]) squares += static_cast<double>(weight) * weight;
    EXPECT_NEAR(std::sqrt(squares), options.rate * options.clip_norm, 1e-6);
  });
}

// What is measured and saved is one model.
TEST(Session, RanksThatTakeLocalStepsAreAlikeAtTheEndOfAnEpoch) {
  for (const char* const recipe : {"local2:4", "sparseloco:2", "diloco:5"}) {
    TrainerOptions options = three_exact_steps(3, recipe);
    options.epochs = 2;
    options.rate = 0.01;
    std::vector<std::vector<float>> weights(3);
    run_threads(3, [&](Communicator& communicator) {
      LinearLearner learner;
      const TrainResult result = Session(communicator, learner, options).train();
      EXPECT_GT(result.epochs.front().bytes_sent, 0) << recipe;
      EXPECT_NE(learner.all(), LinearLearner().all());
      weights[static_cast<std::size_t>(communicator.rank())] = learner.all();
    });
    EXPECT_EQ(weights[1], weights[0]) << recipe;
    EXPECT_EQ(weights[2], weights[0]) << recipe;
  }
}

TEST(StepRecorder, NotesHowFarScalesOfRowsLieApart) {
  constexpr std::size_t kRows = 40, kLength = 500;
  std::vector<float> gradient(kRows * kLength);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const std::size_t row = i / kLength;
    gradient[i] = row == 7 ? 0.0f : std::exp(row % 2 == 0 ? 0.8f : -0.8f) * (i % 2 == 0 ? 1.0f : -1.0f);
  }
  StepRecorder recorder(3);
  recorder.begin_step();
  recorder.note_rows(0, gradient, kRows);
  recorder.note_rows(1, gradient, 1);  // a row has nothing to differ from
  recorder.note_rows(2, std::vector<float>(10), 5);
  recorder.end_step(0);
  const auto trace = recorder.trace({{.name = "a", .size = gradient.size()}, {.name = "b"}, {.name = "c"}});
  EXPECT_NEAR(trace.parameters[0].row_spread, 0.81, 0.01);  // of 39 rows, one of the kind that is scarce
  EXPECT_EQ(trace.parameters[1].row_spread, gradient::TracedParameter().row_spread);
  EXPECT_EQ(trace.parameters[2].row_spread, gradient::TracedParameter().row_spread);
}

// A user's callback or loss may throw whatever it likes.
TEST(Session, WhatUsersCodeThrowsIsToldToAllRanksAtOnce) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::string> told(3);
  const auto try_all = [&](auto work) {
    run_threads(3, [&](Communicator& communicator) {
      try {
        work(communicator);
      } catch (const std::exception& error) {
        told[static_cast<std::size_t>(communicator.rank())] = error.what();
      }
    });
    for (const std::string& words : told) EXPECT_NE(words.find("out of paper"), std::string::npos) << words;
    told.assign(3, "");
  };
  try_all([](Communicator& communicator) {
    LinearLearner learner;
    TrainerOptions options = three_exact_steps(3, "dense");
    options.epochs = 3;
    options.on_epoch = [](const EpochMetrics&) { throw std::runtime_error("out of paper"); };
    Session(communicator, learner, options).train();
  });
  try_all([](Communicator& communicator) {
    LinearLearner learner;
    learner.before_evaluation = [&] {
      if (communicator.rank() == 1) throw std::runtime_error("out of paper");
    };
    Session(communicator, learner, three_exact_steps(3, "dense")).evaluate();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(30));
}

TEST(Session, ALossThatIsNoNumberIsInACheckpointAndEndsNoRunThatGetsBetter) {
  const TemporaryDirectory scratch;
  TrainerOptions options = three_exact_steps(2, "dense");
  options.patience = 2;
  options.epochs = 2;
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  const auto run = [&](int evaluations_before, double first_loss) {
    run_threads(2, [&](Communicator& communicator) {
      LinearLearner learner;
      int evaluations = evaluations_before;
      learner.before_evaluation = [&] { learner.held_out_loss = evaluations++ == 0 ? first_loss : 10.0 - evaluations; };
      const TrainResult result = Session(communicator, learner, options).train();
      EXPECT_EQ(result.epochs.size(), static_cast<std::size_t>(options.epochs));
      EXPECT_TRUE(std::isnan(result.epochs.front().held_out.loss));
    });
  };
  run(0, std::nan(""));
  options.epochs = 6;
  run(2, std::nan(""));
}

TEST(Session, PatienceEndsARunWhoseHeldOutLossStaysNoNumber) {
  run_threads(2, [](Communicator& communicator) {
    LinearLearner learner;
    learner.held_out_loss = std::nan("");
    TrainerOptions options{.batch = 8, .epochs = 100, .patience = 3};
    EXPECT_EQ(Session(communicator, learner, options).train().epochs.size(), 3u);
  });
}

TEST(RunState, OfACheckpointIsRefusedWhereACountIsNegativeAndReadHoweverDeepItsBracketsAre) {
  const auto text_of = [](const std::string& state) {
    return R"({"kind":"tulle_nn","facts":{},"division":"","pipeline_bytes":0,"state":{)" + state + "}}";
  };
  EXPECT_NE(error_of([&] { run_from_json(text_of(R"("epoch":-1)"), {}, "file"); }).find("epoch is -1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { run_from_json(text_of(R"("epoch":3)"), {}, "file"); }).find("3 epochs are over"),
            std::string::npos);
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(run_from_json(text_of(R"("x":)" + deep), {}, "file").state.epoch, 0u);
  EXPECT_NE(error_of([&] { run_from_json(text_of(R"("epoch":)" + deep), {}, "file"); }).find("epoch is array"),
            std::string::npos);
}

TEST(Session, PatienceNeedsSamplesThatAreHeldOut) {
  run_threads(1, [](Communicator& communicator) {
    LinearLearner learner;
    learner.held_out = 0;
    TrainerOptions options{.batch = 2, .patience = 1};
    EXPECT_NE(error_of([&] { const Session session(communicator, learner, options); }).find("patience"),
              std::string::npos);
  });
}

TEST(Session, AResumedRunIsTheUninterruptedOneBitForBit) {
  for (const char* const recipe :
       {"topk:10%|dense_below:0", "redsync:20%|dense_below:0", "sparseloco:every=3", "dense"}) {
    const TemporaryDirectory scratch;
    TrainerOptions options = three_exact_steps(4, recipe);
    options.epochs = 4;
    options.rate = 0.01;
    options.optimizer.momentum = 0.5;
    const std::vector<float> whole = trained(4, options);
    options.checkpoint = {.path = scratch.path("run"), .resume = true};
    run_threads(4, [&](Communicator& communicator) {
      LinearLearner learner;
      TrainerOptions stopping = options;
      stopping.stop_requested = [&] { return learner.steps >= 4; };  // in the middle of the second epoch
      const TrainResult result = Session(communicator, learner, stopping).train();
      EXPECT_TRUE(result.was_stopped);
      EXPECT_LT(learner.steps, 12);
    });
    std::vector<float> resumed;
    run_threads(4, [&](Communicator& communicator) {
      LinearLearner learner;
      const TrainResult result = Session(communicator, learner, options).train();
      EXPECT_TRUE(result.was_resumed);
      EXPECT_EQ(result.epochs.size(), 4u);
      EXPECT_LT(learner.steps, 12);
      if (communicator.rank() == 0) resumed = learner.all();
    });
    EXPECT_EQ(resumed, whole) << recipe;
  }
}

TEST(Session, ACheckpointGoesOnOnAnotherNumberOfRanks) {
  const TemporaryDirectory scratch;
  TrainerOptions options = three_exact_steps(4, "topk:10%|dense_below:0");
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  const std::vector<float> saved = trained(4, options);
  options.batch = 4;
  EXPECT_EQ(trained(2, options), saved);  // all epochs are over: nothing changes
  options.epochs = 2;
  run_threads(2, [&](Communicator& communicator) {
    LinearLearner learner;
    EXPECT_TRUE(Session(communicator, learner, options).train().was_resumed);
    EXPECT_EQ(learner.steps, 3);
    EXPECT_NE(learner.all(), saved);
  });
}

TEST(Session, WhereTheNumberOfRanksReturnsTheNewestCheckpointIsTaken) {
  const TemporaryDirectory scratch;
  TrainerOptions options = three_exact_steps(4, "topk:10%|dense_below:0");
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  for (const int ranks : {2, 4, 2, 3}) {
    run_threads(ranks, [&](Communicator& communicator) {
      LinearLearner learner;
      EXPECT_EQ(Session(communicator, learner, options).train().epochs.size(), options.epochs);
      EXPECT_EQ(learner.steps, 3) << ranks;  // of the new epoch alone
    });
    EXPECT_TRUE(std::filesystem::exists(scratch.path("run.0-of-" + std::to_string(ranks))));
    options.epochs += 1;
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run.0-of-2")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run.3-of-4")));
}

// Two ranks' files of an epoch, and of the one after it.
class SavedTwice : public ::testing::Test {
 protected:
  SavedTwice() {
    options_.checkpoint = {.path = scratch_.path("run"), .resume = true};
    options_.on_message = [this](const std::string& message) { told_ += message + "\n"; };
    for (options_.epochs = 1; options_.epochs <= 2; ++options_.epochs) trained(2, options_);
    for (const char* const rank : {"run.0-of-2", "run.1-of-2"}) files_.emplace_back(scratch_.path(rank));
  }

  // Of the steps that are left to the end of the third epoch, which has three.
  int steps_to_third_epoch() {
    int steps = 0;
    told_.clear();
    run_threads(2, [&](Communicator& communicator) {
      LinearLearner learner;
      Session(communicator, learner, options_).train();
      if (communicator.rank() == 0) steps = learner.steps;
    });
    return steps;
  }

  const TemporaryDirectory scratch_;
  TrainerOptions options_ = three_exact_steps(2, "topk:10%|dense_below:0");
  std::vector<TornFile> files_;
  std::string told_;
};

TEST_F(SavedTwice, AJobThatIsKilledWhileItSavesGoesOnFromAStepThatAllRanksHave) {
  for (const bool is_first : {false, true}) {
    for (const auto& [first, second] : two_ranks_killed()) {
      if (is_first) std::ranges::for_each(files_, &TornFile::forget_old);
      files_[0].leave(first);
      files_[1].leave(second);
      const bool is_written = first != Killed::writing && second != Killed::writing;
      const int nothing = is_first ? 9 : 6;
      EXPECT_EQ(steps_to_third_epoch(), is_written ? 3 : nothing)
          << static_cast<int>(first) << static_cast<int>(second);
    }
  }
}

TEST_F(SavedTwice, WhereTheNewestIsDamagedTheOneBeforeIsTakenAndTheReasonTold) {
  files_[1].damage();
  EXPECT_EQ(steps_to_third_epoch(), 6);
  EXPECT_NE(
      told_.find("goes on from an older checkpoint: " + scratch_.path("run.1-of-2") + ": the checkpoint is damaged"),
      std::string::npos)
      << told_;
  EXPECT_EQ(steps_to_third_epoch(), 0) << "what it has written is whole";
}

TEST_F(SavedTwice, FilesOfTwoRunsOfEqualStepsAreNotMixed) {
  const std::string mine = contents_of(scratch_.path("run.0-of-2"));
  for (const char* const ending : {"", ".before"}) {
    for (const char* const rank : {"run.0-of-2", "run.1-of-2"}) std::filesystem::remove(scratch_.path(rank) + ending);
  }
  options_.rate *= 2;
  options_.epochs = 2;
  trained(2, options_);
  std::ofstream(scratch_.path("run.0-of-2"), std::ios::binary) << mine;
  const std::string error = error_of([&] { trained(2, options_); });
  EXPECT_NE(error.find("ranks have no checkpoint in common: rank 0 has step 6 of run "), std::string::npos) << error;
}

TEST_F(SavedTwice, WeightsThatDifferAreRefusedThoughTheFilesBelongTogether) {
  const std::string path = scratch_.path("run.1-of-2");
  const CheckpointFile file = CheckpointFile::read(*open_file(path));
  std::vector<std::byte> arrays(file.array_bytes());
  file.restore({arrays});
  arrays.front() ^= std::byte{1};  // of the first weight
  OutputFile changed(path);
  write_checkpoint(changed, file.description(), {arrays});
  changed.commit();
  const std::string error = error_of([&] { steps_to_third_epoch(); });
  EXPECT_NE(error.find("ranks' files hold different weights"), std::string::npos) << error;
}

TEST_F(SavedTwice, ASecondJobWithItsPathEndsAtOnce) {
  const FileLock other_job(scratch_.path("run"));
  const std::string error = error_of([&] { steps_to_third_epoch(); });
  EXPECT_NE(error.find("another job writes this checkpoint: process"), std::string::npos) << error;
}

TEST(Session, ARunThatIsOverSaysSoAndDoesNotGoOn) {
  const TemporaryDirectory scratch;
  TrainerOptions options{.batch = 8, .epochs = 100};  // its held-out loss rises from epoch to epoch
  options.patience = 2;
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& message) { messages.push_back(message); };
  trained(2, options);
  const auto again = [&] {
    run_threads(2, [&](Communicator& communicator) {
      LinearLearner learner;
      EXPECT_EQ(Session(communicator, learner, options).train().epochs.size(), 3u);
      EXPECT_EQ(learner.steps, 0);
    });
    return messages.back();
  };
  EXPECT_NE(again().find("no longer fell, after epoch 3"), std::string::npos) << messages.back();
  options.patience = 0;
  options.epochs = 3;
  EXPECT_NE(again().find("this run is over, after epoch 3"), std::string::npos) << messages.back();
}

TEST(Session, ACheckpointOfAnotherRunIsRefusedByName) {
  const TemporaryDirectory scratch;
  TrainerOptions options = three_exact_steps(2, "dense");
  options.checkpoint = {.path = scratch.path("run"), .resume = true};
  trained(2, options);
  options.recipe = gradient::parse_recipe("topk:10%");
  EXPECT_NE(error_of([&] { trained(2, options); }).find("recipe was dense, and is topk|density:0.1 now"),
            std::string::npos)
      << error_of([&] { trained(2, options); });
  options.recipe = gradient::parse_recipe("dense");
  std::filesystem::remove(scratch.path("run.1-of-2"));
  const std::string missing = error_of([&] { trained(2, options); });
  EXPECT_NE(missing.find("run.1-of-2 is not there: some ranks have no checkpoint"), std::string::npos) << missing;
}

TEST(Session, ACheckpointOfAnotherNetworkNamesTheParameterThatDiffers) {
  const auto facts = [](std::uint64_t size) {
    return Facts{{"parameters", network_fact({{.name = "first", .size = 4}, {.name = "second", .size = size}})}};
  };
  const std::string saved = to_json({}, facts(8));
  EXPECT_EQ(error_of([&] { run_from_json(saved, facts(8), "run"); }), "no error");
  const std::string told = error_of([&] { run_from_json(saved, facts(9), "run"); });
  EXPECT_NE(told.find("run: parameters differ: number 2 was second of 8 values, and is second of 9 values now"),
            std::string::npos)
      << told;
  const std::string of_older_tulle = to_json({}, {{"parameters", "2 (00000000)"}});
  EXPECT_NE(error_of([&] { run_from_json(of_older_tulle, facts(8), "run"); }).find("was 2 (00000000), and is 2 ("),
            std::string::npos);
}

TEST(Session, ARankThatFailsIsHeardOfByAllAtOnce) {
  std::vector<std::string> told(3);
  EXPECT_NE(error_of([&] {
              run_threads(3, [&](Communicator& communicator) {
                LinearLearner learner;
                learner.fails_at = communicator.rank() == 1 ? 2 : 0;
                told[static_cast<std::size_t>(communicator.rank())] =
                    error_of([&] { Session(communicator, learner, three_exact_steps(1, "dense")).train(); });
                throw Error(ErrorKind::bad_input, told[static_cast<std::size_t>(communicator.rank())]);
              });
            }),
            "no error");
  for (const std::string& text : told) EXPECT_NE(text.find("no more"), std::string::npos) << text;
}

TEST(Session, BuffersAreRankZerosOrTheMean) {
  for (const Buffers buffers : {Buffers::rank0, Buffers::average}) {
    run_threads(3, [&](Communicator& communicator) {
      LinearLearner learner;
      learner.running[0] = learner.counter = communicator.rank() + 1;
      TrainerOptions options{.batch = 2};
      options.buffers = buffers;
      Session session(communicator, learner, options);
      EXPECT_EQ(learner.running[0], 1.0f);  // networks begin alike
      EXPECT_EQ(learner.counter, 1);
      learner.running[0] = static_cast<float>(communicator.rank()) + 1;
      const Evaluation found = session.evaluate();
      EXPECT_EQ(learner.running[0], buffers == Buffers::rank0 ? 1.0f : 2.0f);
      EXPECT_EQ(found.samples, 10);  // each sample by one rank
      EXPECT_EQ(found.accuracy, 0.3);
    });
  }
}

TEST(Session, StopsWhereTheHeldOutLossNoLongerFalls) {
  run_threads(2, [](Communicator& communicator) {
    LinearLearner learner;  // its held-out loss rises from epoch to epoch
    TrainerOptions options{.batch = 8, .epochs = 100};
    options.patience = 2;
    EXPECT_EQ(Session(communicator, learner, options).train().epochs.size(), 3u);
  });
}

TEST(Session, OptionsOutOfBoundsAreNamed) {
  run_threads(1, [](Communicator& communicator) {
    LinearLearner learner;
    const auto told = [&](auto change) {
      TrainerOptions options;
      change(options);
      return error_of([&] { Session(communicator, learner, options).train(); });
    };
    EXPECT_NE(told([](TrainerOptions& options) { options.epochs = 0; }).find("epochs"), std::string::npos);
    EXPECT_NE(told([](TrainerOptions& options) { options.rate = -1; }).find("rate"), std::string::npos);
    EXPECT_NE(told([](TrainerOptions& options) { options.optimizer.nesterov = true; }).find("nesterov"),
              std::string::npos);
    EXPECT_NE(told([](TrainerOptions& options) { options.checkpoint.resume = true; }).find("resume"),
              std::string::npos);
    EXPECT_NE(told([](TrainerOptions& options) { options.batch = 1000; }).find("64 samples"), std::string::npos);
  });
}

TEST(Schedules, WarmUpGrowsAndStepAndCosineFall) {
  const ScheduleOptions warm{.schedule = Schedule::constant, .warm_up_epochs = 1};
  EXPECT_DOUBLE_EQ(schedule_factor(warm, 0, 40, 10), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(warm, 9, 40, 10), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(warm, 39, 40, 10), 1);
  EXPECT_DOUBLE_EQ(schedule_factor({.schedule = Schedule::step}, 19, 40, 10), 1);
  EXPECT_DOUBLE_EQ(schedule_factor({.schedule = Schedule::step}, 20, 40, 10), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor({.schedule = Schedule::step}, 30, 40, 10), 0.01);
  EXPECT_NEAR(schedule_factor({.schedule = Schedule::cosine}, 20, 40, 10), 0.5, 1e-12);
}

TEST(OptimizerSteps, AreThoseOfTheirFormulas) {
  const std::uint64_t sizes[] = {1};
  std::vector<float> weights = {1};
  const std::vector<float> gradient = {2};
  Optimizer momentum({.momentum = 0.5, .weight_decay = 0.25}, sizes);
  momentum.apply(0, weights, gradient, 0.1);  // v = 2.25
  EXPECT_FLOAT_EQ(weights[0], 0.775f);
  momentum.apply(0, weights, gradient, 0.1);  // v = 1.125 + 2 + 0.19375
  EXPECT_FLOAT_EQ(weights[0], 0.775f - 0.331875f);
  weights = {1};
  Optimizer nesterov({.momentum = 0.5, .nesterov = true}, sizes);
  nesterov.apply(0, weights, gradient, 0.1);  // 2 + 0.5 · 2
  EXPECT_FLOAT_EQ(weights[0], 0.7f);
  weights = {1};
  Optimizer adamw({.kind = OptimizerKind::adamw, .weight_decay = 0.5}, sizes);
  adamw.apply(0, weights, gradient, 0.1);  // decay by 0.05, then a step of the rate's length
  EXPECT_NEAR(weights[0], 0.85f, 1e-6);
  EXPECT_TRUE(Optimizer({}, sizes).is_plain());
  EXPECT_FALSE(Optimizer({.momentum = 0.5}, sizes).is_plain());
}

}  // namespace
}  // namespace tulle::nn
