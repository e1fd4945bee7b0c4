#include "tulle/linear/train.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "base/error_of.hpp"
#include "base/file_lock.hpp"
#include "base/memory.hpp"
#include "base/temporary_directory.hpp"
#include "base/torn_file.hpp"
#include "linear/ranks.hpp"
#include "tulle/base/error.hpp"
#include "tulle/linear/kmeans.hpp"
#include "tulle/linear/pca.hpp"

namespace tulle::linear {
namespace {

using testing::cut_rows;
using testing::largest_difference;
using testing::sample_rows;
using testing::train_alone;
using testing::train_in_simulation;

// The batches of P ranks in the order in which one rank with batches P times as large meets them.
Rows interleaved(const std::vector<Rows>& parts, std::size_t batch) {
  Rows rows;
  for (std::size_t first = 0; first < parts[0].size(); first += batch) {
    for (const Rows& part : parts) {
      for (std::size_t row = first; row < std::min(first + batch, part.size()); ++row)
        rows.append(part[row], part.label(row));
    }
  }
  return rows;
}

TEST(Sgd, FindsTheLeastSquaresSolution) {
  // y = 2·x0 − 3·x1 + 1, exactly.
  Rows rows;
  for (int i = 0; i < 60; ++i) {
    const auto x0 = static_cast<float>(i % 7) - 3, x1 = static_cast<float>(i % 5) - 2;
    if (x0 != 0) rows.add(0, x0);
    if (x1 != 0) rows.add(1, x1);
    rows.end_row(2 * x0 - 3 * x1 + 1);
  }
  const LinearModel model = train_alone(
      rows, {.loss = Loss::squares, .epochs = 100, .batch_rows = 20, .rate = 0.1, .schedule = Schedule::constant});
  EXPECT_NEAR(model.weights[0], 2, 1e-3);
  EXPECT_NEAR(model.weights[1], -3, 1e-3);
  EXPECT_NEAR(model.intercepts[0], 1, 1e-3);
}

TEST(Sgd, FindsTheRidgeSolutionOfOneFeature) {
  // Minimum of (w − 2)²/2 + l2/2·w² is 2/(1 + l2); with L1 alone it is 2 − l1.
  Rows rows;
  for (int i = 0; i < 10; ++i) {
    rows.add(0, 1);
    rows.end_row(2);
  }
  TrainOptions options{.loss = Loss::squares,
                       .penalty = {.l2 = 0.5},
                       .intercept = false,
                       .epochs = 200,
                       .batch_rows = 10,
                       .schedule = Schedule::constant};
  EXPECT_NEAR(train_alone(rows, options).weights[0], 2 / 1.5, 1e-3);
  options.penalty = {.l1 = 0.5};
  EXPECT_NEAR(train_alone(rows, options).weights[0], 1.5, 1e-3);
}

TEST(Sgd, OnSeveralRanksEqualsOneRankBitForBitOnIntegers) {
  const Rows rows = sample_rows({.rows = 120, .classes = 0, .integers = true});
  // Whole numbers and a rate that is a power of two: three steps of sums stay exact.
  TrainOptions options{.loss = Loss::squares,
                       .epochs = 1,
                       .batch_rows = 8,
                       .rate = 0.25,
                       .schedule = Schedule::constant,
                       .aggregation = "sparse",
                       .shuffle = false};
  for (const std::size_t ranks : {2, 4, 8}) {
    const std::vector<Rows> parts = cut_rows(testing::slice_rows(rows, 0, ranks * 8), ranks);
    TrainOptions alone = options;
    alone.batch_rows = static_cast<std::uint32_t>(8 * ranks);
    const auto results = train_in_simulation(parts, options);
    const LinearModel expected = train_alone(interleaved(parts, 8), alone);
    for (const TrainResult& result : results) {
      EXPECT_EQ(result.model.weights, expected.weights);
      EXPECT_EQ(result.model.intercepts, expected.intercepts);
    }
  }
}

TEST(Sgd, OnSeveralRanksEqualsOneRankToRounding) {
  const Rows rows = sample_rows({.rows = 300});
  for (const std::size_t ranks : {2, 3, 5}) {
    const std::vector<Rows> parts = cut_rows(rows, ranks);
    TrainOptions options{.penalty = {.l1 = 1e-3, .l2 = 1e-2}, .epochs = 3, .batch_rows = 10, .shuffle = false};
    const auto results = train_in_simulation(parts, options);
    options.batch_rows = static_cast<std::uint32_t>(10 * ranks);
    const LinearModel expected = train_alone(interleaved(parts, 10), options);
    EXPECT_LT(largest_difference(results[0].model, expected), 2e-4);
    for (const TrainResult& result : results) EXPECT_EQ(result.model.weights, results[0].model.weights);
  }
}

TEST(Sgd, TakesTheSameWayWithDenseAndSparseAggregation) {
  const auto parts = cut_rows(sample_rows({.rows = 300, .features = 500, .density = 0.02}), 4);
  TrainOptions options{.penalty = {.l2 = 1e-3}, .epochs = 3, .batch_rows = 20, .aggregation = "dense"};
  const TrainResult dense = train_in_simulation(parts, options)[0];
  for (const std::string row : {"sparse", "auto", "ssar_recursive_double", "dsar_split_allgather"}) {
    options.aggregation = row;
    const TrainResult sparse = train_in_simulation(parts, options)[0];
    EXPECT_LT(largest_difference(dense.model, sparse.model), 1e-4) << row;
    for (std::size_t e = 0; e < 3; ++e) EXPECT_NEAR(dense.epochs[e].objective, sparse.epochs[e].objective, 1e-5);
    EXPECT_TRUE(row != "sparse" || sparse.epochs[2].bytes < dense.epochs[2].bytes);
  }
}

TEST(Sgd, GivesTheSameBitsOnThreadsAndInSimulation) {
  const auto parts = cut_rows(sample_rows({.rows = 90}), 3);
  const TrainOptions options{.epochs = 2, .batch_rows = 10};
  const LinearModel simulated = train_in_simulation(parts, options)[0].model;
  run_threads(3, [&](Communicator& communicator) {
    Dataset data(parts[static_cast<std::size_t>(communicator.rank())]);
    EXPECT_EQ(train(communicator, data, nullptr, options).model.weights, simulated.weights);
  });
}

TEST(Sgd, TakesPartWithRanksThatHaveFewRowsOrNone) {
  std::vector<Rows> parts = {sample_rows({.rows = 100}), Rows(), sample_rows({.rows = 7, .seed = 2})};
  const auto results = train_in_simulation(parts, {.epochs = 2, .batch_rows = 10});
  EXPECT_EQ(results[0].epochs[1].steps, 20u);
  EXPECT_EQ(results[1].model.weights, results[0].model.weights);
}

TEST(Sgd, SpreadsRowsEvenlySoThatNoBatchIsSmall) {
  // 21 rows in batches of 10 are three steps of 7; as two full ones and a single row they would be others.
  const Rows rows = sample_rows({.rows = 21});
  const TrainOptions options{.epochs = 1, .batch_rows = 10, .shuffle = false};
  TrainOptions sevens = options;
  sevens.batch_rows = 7;
  EXPECT_EQ(train_alone(rows, options).weights, train_alone(rows, sevens).weights);
}

TEST(Sgd, EverySolutionIsBetterThanNothing) {
  for (const Loss loss : {Loss::logistic, Loss::hinge, Loss::squared_hinge}) {
    for (const Schedule schedule : {Schedule::constant, Schedule::step, Schedule::inverse,
                                    Schedule::inverse_square_root, Schedule::bold_driver, Schedule::adagrad}) {
      const double decay = schedule == Schedule::step ? 0.9 : 0.01;
      const auto results = train_in_simulation(
          cut_rows(sample_rows({}), 2),
          {.loss = loss, .epochs = 20, .batch_rows = 10, .rate = 0.3, .decay = decay, .schedule = schedule});
      const auto& epochs = results[0].epochs;
      EXPECT_LT(epochs.back().objective, 0.8 * epochs.front().objective)
          << to_string(loss) << " " << to_string(schedule);
    }
  }
}

TEST(Sgd, TellsManyClassesApart) {
  const Rows rows = sample_rows({.rows = 400, .classes = 4});
  const LinearModel model = train_in_simulation(cut_rows(rows, 3), {.epochs = 30, .batch_rows = 20})[0].model;
  EXPECT_EQ(model.classes, (std::vector<float>{0, 1, 2, 3}));
  std::size_t correct = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) correct += model.predict(rows[row]) == rows.label(row);
  EXPECT_GT(correct, 320u);
}

TEST(Sgd, ClassWeightsCountLikeRepeatedRows) {
  const Rows rows = sample_rows({.rows = 60});
  Rows repeated;
  double total = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (int times = 0; times < (rows.label(row) > 0 ? 3 : 1); ++times) repeated.append(rows[row], rows.label(row));
    total += rows.label(row) > 0 ? 3 : 1;
  }
  TrainOptions options{.epochs = 10, .batch_rows = 1000, .rate = 0.1, .schedule = Schedule::constant};
  const LinearModel expected = train_alone(repeated, options);
  options.class_weights[1] = 3;
  options.rate = 0.1 * 60 / total;  // the mean is over rows, however much they weigh
  EXPECT_LT(largest_difference(train_alone(rows, options), expected), 1e-5);
}

TEST(Sgd, StopsEarlyWhenTheLossNoLongerFalls) {
  const auto results = train_in_simulation(cut_rows(sample_rows({}), 2),
                                           {.epochs = 500, .tolerance = 0.01, .patience = 2, .batch_rows = 10});
  EXPECT_LT(results[0].epochs.size(), 200u);
  EXPECT_EQ(results[0].epochs.size(), results[1].epochs.size());
}

TEST(Staleness, GivesTheSameOnEveryRankAndEveryRun) {
  const auto parts = cut_rows(sample_rows({.rows = 300}), 4);
  for (const int staleness : {1, 3}) {
    const TrainOptions options{.epochs = 3, .batch_rows = 10, .staleness = staleness};
    const auto first = train_in_simulation(parts, options);
    for (const TrainResult& result : train_in_simulation(parts, options)) {
      EXPECT_EQ(result.model.weights, first[0].model.weights);
    }
    run_threads(4, [&](Communicator& communicator) {
      Dataset data(parts[static_cast<std::size_t>(communicator.rank())]);
      EXPECT_EQ(train(communicator, data, nullptr, options).model.weights, first[0].model.weights);
    });
  }
}

TEST(Staleness, DelaysTheSumByAsManySteps) {
  const auto parts = cut_rows(sample_rows({.rows = 40}), 2);
  const auto loss_with = [&](int staleness) {
    return train_in_simulation(parts, {.epochs = 1, .batch_rows = 10, .staleness = staleness, .shuffle = false})[0]
        .epochs[0]
        .objective;
  };
  // Two steps: with a staleness of one or more the second does not see the first one's sum yet.
  EXPECT_NE(loss_with(0), loss_with(1));
  EXPECT_EQ(loss_with(1), loss_with(5));
}

// Six steps: a sum that comes one step later than asked for gives other weights, up to where none comes in time at all.
TEST(Staleness, IsToldApartFromAnotherStaleness) {
  const Rows rows = sample_rows({.rows = 120});
  for (const Solver solver : {Solver::sgd, Solver::scd}) {
    const auto parts = solver == Solver::sgd ? cut_rows(rows, 2) : std::vector<Rows>(2, rows);
    const auto weights_with = [&](int staleness) {
      const TrainOptions options{.solver = solver,
                                 .epochs = 1,
                                 .batch_rows = 10,
                                 .staleness = staleness,
                                 .shuffle = false,
                                 .coordinates = 2,
                                 .damping = 2};
      return train_in_simulation(parts, options)[0].model.weights;
    };
    std::set<std::vector<float>> different;
    for (int staleness = 0; staleness < 6; ++staleness) different.insert(weights_with(staleness));
    EXPECT_EQ(different.size(), 6u);
    EXPECT_EQ(weights_with(100), weights_with(200));
  }
}

TEST(Staleness, OfCoordinatesStillConvergesAndHidesWaiting) {
  const std::vector<Rows> parts(4, sample_rows({.rows = 300, .features = 400, .density = 0.05}));  // all have all rows
  TrainOptions options{.solver = Solver::scd, .penalty = {.l2 = 0.01}, .epochs = 30, .coordinates = 5};
  const auto at_once = train_in_simulation(parts, options)[0].epochs;
  options.staleness = 3;
  const auto late = train_in_simulation(parts, options)[0].epochs;
  EXPECT_NEAR(late.back().objective, at_once.back().objective, 0.05 * at_once.back().objective);
  EXPECT_LT(late.front().seconds, at_once.front().seconds);
}

TEST(Staleness, StillConverges) {
  const auto parts = cut_rows(sample_rows({.rows = 300}), 3);
  TrainOptions options{.epochs = 40, .batch_rows = 10};
  const double at_once = train_in_simulation(parts, options)[0].epochs.back().objective;
  options.staleness = 4;
  EXPECT_NEAR(train_in_simulation(parts, options)[0].epochs.back().objective, at_once, 0.05 * at_once);
}

TEST(Staleness, HidesWaitingBehindComputation) {
  const auto parts = cut_rows(sample_rows({.rows = 4000, .features = 3000, .density = 0.02}), 4);
  TrainOptions options{.epochs = 1, .batch_rows = 100, .aggregation = "sparse"};
  const double at_once = train_in_simulation(parts, options)[0].epochs[0].seconds;
  options.staleness = 2;
  EXPECT_LT(train_in_simulation(parts, options)[0].epochs[0].seconds, at_once);
}

class Checkpoint : public ::testing::Test {
 protected:
  TrainOptions options(const std::string& path = "") {
    return {.penalty = {.l1 = 1e-4, .l2 = 1e-3},
            .epochs = 4,
            .batch_rows = 10,
            .checkpoint = {.path = path, .seconds = 1e9}};
  }
  std::vector<Rows> parts_ = cut_rows(sample_rows({.rows = 200}), 2);
  testing::TemporaryDirectory scratch_;
};

TEST_F(Checkpoint, ARunThatWasStoppedGoesOnAsIfItHadNotBeen) {
  for (const Schedule schedule : {Schedule::adagrad, Schedule::inverse, Schedule::bold_driver}) {
    TrainOptions whole = options();
    whole.schedule = schedule;
    const auto expected = train_in_simulation(parts_, whole);
    TrainOptions stopped = options(scratch_.path(std::string(to_string(schedule))));
    stopped.schedule = schedule;
    int asked = 0;
    stopped.stop_requested = [&] { return ++asked == 35; };  // one rank in the middle of the second epoch
    const auto first = train_in_simulation(parts_, stopped);
    EXPECT_TRUE(first[0].was_stopped && first[1].was_stopped);
    EXPECT_EQ(first[0].epochs.size(), 1u);
    stopped.stop_requested = nullptr;
    stopped.checkpoint.resume = true;
    const auto second = train_in_simulation(parts_, stopped);
    EXPECT_TRUE(second[1].was_resumed);
    EXPECT_EQ(second[0].model.weights, expected[0].model.weights);
    EXPECT_EQ(second[1].model.weights, expected[0].model.weights);
    ASSERT_EQ(second[0].epochs.size(), 4u);
    EXPECT_EQ(second[0].epochs[3].objective, expected[0].epochs[3].objective);
  }
}

TEST_F(Checkpoint, IsWrittenWhenItIsTime) {
  TrainOptions often = options(scratch_.path("often"));
  often.checkpoint.seconds = 0;
  often.on_step = [&](std::uint64_t done, std::uint64_t) {
    EXPECT_TRUE(done < 5 || std::filesystem::exists(scratch_.path("often")));
  };
  train_in_simulation(parts_, often);
}

TEST_F(Checkpoint, GoesOnWithAnotherNumberOfRanksFromTheEpochsBeginning) {
  TrainOptions two = options(scratch_.path("ranks"));
  two.epochs = 2;
  train_in_simulation(parts_, two);
  two.epochs = 3;
  two.checkpoint.resume = true;
  const auto three = train_in_simulation(cut_rows(sample_rows({.rows = 200}), 3), two);
  EXPECT_EQ(three[0].epochs.size(), 3u);
  EXPECT_LT(three[0].epochs[2].objective, three[0].epochs[0].objective);
}

TEST_F(Checkpoint, OfAnotherModelIsRefused) {
  TrainOptions logistic = options(scratch_.path("other"));
  train_in_simulation(parts_, logistic);
  logistic.checkpoint.resume = true;
  TrainOptions hinge = logistic, unpenalized = logistic;
  hinge.loss = Loss::hinge;
  unpenalized.penalty = {};
  EXPECT_THROW(train_in_simulation(parts_, hinge), Error);
  EXPECT_THROW(train_in_simulation(parts_, unpenalized), Error);
}

TEST_F(Checkpoint, IsRefusedWhereItIsDamaged) {
  TrainOptions run = options(scratch_.path("damaged"));
  train_in_simulation(parts_, run);
  std::string bytes = testing::contents_of(scratch_.path("damaged"));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(scratch_.path("damaged"), std::ios::binary) << bytes;
  run.checkpoint.resume = true;
  const std::string error = testing::error_of([&] { train_in_simulation(parts_, run); });
  EXPECT_NE(error.find("damaged"), std::string::npos) << error;
}

// One file of rank 0's, which has two epochs and before it one.
class SavedTwice : public Checkpoint {
 protected:
  SavedTwice() {
    options_.checkpoint.resume = true;
    options_.on_message = [this](const std::string& message) { told_ += message + "\n"; };
    for (options_.epochs = 1; options_.epochs <= 2; ++options_.epochs) train_in_simulation(parts_, options_);
    file_.emplace(options_.checkpoint.path);
  }

  // That the third epoch is begun with.
  std::string epoch_it_goes_on_with() {
    told_.clear();
    train_in_simulation(parts_, options_);
    for (const std::string epoch : {"1", "2", "3"}) {
      if (told_.find("epoch " + epoch + ", step 0 of it") != std::string::npos) return epoch;
    }
    return told_;
  }

  TrainOptions options_ = options(scratch_.path("run"));
  std::optional<testing::TornFile> file_;
  std::string told_;
};

TEST_F(SavedTwice, AJobThatIsKilledWhileItSavesGoesOn) {
  using enum testing::Killed;
  file_->leave(writing);
  EXPECT_EQ(epoch_it_goes_on_with(), "2");
  for (const testing::Killed killed : {written, moved, placed}) {
    file_->leave(killed);
    EXPECT_EQ(epoch_it_goes_on_with(), "3") << static_cast<int>(killed);
  }
  file_->forget_old();
  file_->leave(writing);
  EXPECT_NE(epoch_it_goes_on_with().find("starts from the beginning"), std::string::npos);
}

TEST_F(SavedTwice, WhereTheNewestIsDamagedTheOneBeforeIsTakenAndTheReasonTold) {
  file_->damage();
  EXPECT_EQ(epoch_it_goes_on_with(), "2");
  EXPECT_NE(told_.find("run: the checkpoint is damaged"), std::string::npos) << told_;
}

TEST_F(SavedTwice, ASecondJobWithItsPathEndsAtOnce) {
  const FileLock other_job(options_.checkpoint.path);
  const std::string error = testing::error_of([&] { train_in_simulation(parts_, options_); });
  EXPECT_NE(error.find("another job writes this checkpoint: process"), std::string::npos) << error;
}

TEST(Train, TellsHowFarItIsWithTheLabels) {
  std::uint64_t seen = 0;
  const Rows rows = sample_rows({.rows = 300, .features = 20, .density = 0.2});
  TrainOptions options{.epochs = 1, .batch_rows = 50};
  options.on_labels = [&](std::uint64_t count) { seen += count; };
  train_in_simulation(cut_rows(rows, 3), options);
  EXPECT_EQ(seen, 100u);  // of rank 0
}

TEST(Train, TellsAllRanksOfABlockThatCannotBeReadOnOne) {
  for (const std::size_t good_reads : {0u, 1u, 2u, 3u, 4u}) {  // in each pass before the first step, and in an epoch
    SimWorld world({.ranks = 3});
    std::vector<std::size_t> reads(3);
    const TrainOptions options{.epochs = 5, .batch_rows = 10};
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      const auto load = [&reads, rank, good_reads](std::size_t) {
        if (rank == 1 && reads[rank]++ >= good_reads)
          throw Error(ErrorKind::bad_input, "rows.tcsr: block 3 is damaged");
        return std::make_shared<const Rows>(sample_rows({.rows = 50, .seed = rank}));
      };
      Dataset data(30, {50}, load, 0);
      co_await train_task(communicator, data, nullptr, options);
    });
    for (const std::exception_ptr& error : errors) {
      EXPECT_EQ(testing::error_of([&] {
                  if (error) std::rethrow_exception(error);
                }),
                "rows.tcsr: block 3 is damaged");
    }
  }
}

// Each pass over rows is one after which the others would wait for the rank that failed.
TEST(Train, TellsAllRanksOfABlockThatCannotBeReadInAnyPass) {
  const auto errors_of = [](std::size_t good_reads,
                            const std::function<Task<>(Communicator, Dataset&, Dataset&)>& run) {
    SimWorld world({.ranks = 3});
    return world.try_run([&](Communicator& communicator) -> Task<> {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      const auto good = [](std::size_t) { return std::make_shared<const Rows>(sample_rows({.rows = 50})); };
      std::size_t reads = 0;
      const auto bad = [&reads, good, rank, good_reads](std::size_t block) {
        if (rank == 1 && reads++ >= good_reads) throw Error(ErrorKind::bad_input, "rows.tcsr: block 3 is damaged");
        return good(block);
      };
      Dataset sound(30, {50}, good, 0), damaged(30, {50}, bad, 0);
      co_await run(communicator, sound, damaged);
    });
  };
  const auto expect_told = [](const std::vector<std::exception_ptr>& errors) {
    for (const std::exception_ptr& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(testing::error_of([&] { std::rethrow_exception(error); }), "rows.tcsr: block 3 is damaged");
    }
  };
  expect_told(errors_of(0, [](Communicator communicator, Dataset& sound, Dataset& damaged) -> Task<> {
    const TrainOptions options{.epochs = 2, .batch_rows = 10};
    co_await train_task(communicator, sound, &damaged, options);
  }));
  for (const std::size_t good_reads : {0u, 1u, 2u, 3u}) {  // compared, labels counted, rows made columns, twice
    expect_told(errors_of(good_reads, [](Communicator communicator, Dataset&, Dataset& damaged) -> Task<> {
      const TrainOptions options{.solver = Solver::scd, .epochs = 2};
      co_await train_task(communicator, damaged, nullptr, options);
    }));
  }
  for (const std::size_t good_reads : {0u, 1u, 2u, 4u}) {
    expect_told(errors_of(good_reads, [](Communicator communicator, Dataset&, Dataset& damaged) -> Task<> {
      const KmeansOptions options{.clusters = 2};
      co_await kmeans_task(communicator, damaged, options);
    }));
  }
  for (const std::size_t good_reads : {0u, 1u, 2u}) {
    expect_told(errors_of(good_reads, [](Communicator communicator, Dataset&, Dataset& damaged) -> Task<> {
      const PcaOptions options{.components = 2};
      co_await pca_task(communicator, damaged, options);
    }));
  }
}

TEST_F(Checkpoint, ThatCannotBeWrittenDoesNotEndTheRun) {
  std::vector<std::string> told;
  TrainOptions options{.epochs = 2, .batch_rows = 50};
  options.checkpoint = {.path = "/nonexistent/run.ck", .seconds = 0};
  options.on_message = [&](const std::string& message) { told.push_back(message); };
  const auto results = train_in_simulation(cut_rows(sample_rows({.rows = 300}), 3), options);
  EXPECT_EQ(results[0].epochs.size(), 2u);
  EXPECT_NE(results[0].checkpoint_error.find("/nonexistent"), std::string::npos);
  ASSERT_FALSE(told.empty());
  EXPECT_NE(told[0].find("not written"), std::string::npos);
}

TEST(Train, RefusesRanksWithDifferentOptionsAndNamesTheOption) {
  const auto error_where_rank_1 = [](const std::function<void(TrainOptions&)>& differs) {
    SimWorld world({.ranks = 3});
    const auto errors = world.try_run([&](Communicator& communicator) -> Task<> {
      Dataset data(sample_rows({.seed = 5}));
      TrainOptions options{.epochs = 2, .batch_rows = 50};
      if (communicator.rank() == 1) differs(options);
      co_await train_task(communicator, data, nullptr, options);
    });
    const std::string error = testing::error_of([&] { std::rethrow_exception(errors[0]); });
    for (const std::exception_ptr& each : errors) {
      EXPECT_TRUE(each && testing::error_of([&] { std::rethrow_exception(each); }) == error);
    }
    return error;
  };
  const std::vector<std::pair<std::string, std::function<void(TrainOptions&)>>> cases = {
      {"rate is 0.2 on ranks 0, 2, is 0.3 on rank 1", [](TrainOptions& options) { options.rate = 0.3; }},
      {"loss is ", [](TrainOptions& options) { options.loss = Loss::hinge; }},
      {"l1 is ", [](TrainOptions& options) { options.penalty.l1 = 0.1; }},
      {"l2 is ", [](TrainOptions& options) { options.penalty.l2 = 0.1; }},
      {"schedule is ", [](TrainOptions& options) { options.schedule = Schedule::constant; }},
      {"decay is ", [](TrainOptions& options) { options.decay = 0.5; }},
      {"batch is ", [](TrainOptions& options) { options.batch_rows = 20; }},
      {"epochs is ", [](TrainOptions& options) { options.epochs = 3; }},
      {"solver is ", [](TrainOptions& options) { options.solver = Solver::scd; }},
      {"intercept is ", [](TrainOptions& options) { options.intercept = false; }},
      {"balanced is ", [](TrainOptions& options) { options.balanced = true; }},
      {"class weights is ", [](TrainOptions& options) { options.class_weights[1] = 2; }},
      {"aggregation is ", [](TrainOptions& options) { options.aggregation = "dense"; }},
      {"staleness is ", [](TrainOptions& options) { options.staleness = 1; }},
      {"seed is ", [](TrainOptions& options) { options.seed = 9; }},
      {"tolerance is ", [](TrainOptions& options) { options.tolerance = 0.1; }},
      {"resume is ", [](TrainOptions& options) { options.checkpoint.resume = true; }},
      {"epochs is ", [](TrainOptions& options) { options.epochs = 0; }},  // refused by itself, too
  };
  for (const auto& [words, differs] : cases) {
    const std::string error = error_where_rank_1(differs);
    EXPECT_NE(error.find(words), std::string::npos) << words << ": " << error;
  }
}

TEST(Train, NamesALargeIndexAndTheMemoryThatItAsksForBeforeItIsTaken) {
  Rows rows = sample_rows({.rows = 20});
  rows.add(4000000000u, 1);
  rows.end_row(1);
  const auto expect_named = [](const std::string& error, const std::string& bytes) {
    EXPECT_NE(error.find("the largest index in the data is 4000000000"), std::string::npos) << error;
    EXPECT_NE(error.find(bytes + " bytes each"), std::string::npos) << error;
    EXPECT_NE(error.find("this machine has"), std::string::npos) << error;
  };
  for (const Solver solver : {Solver::sgd, Solver::scd}) {
    TrainOptions options{.solver = solver, .epochs = 1};
    if (machine_memory_bytes() > (std::uint64_t{1} << 36)) GTEST_SKIP() << "this machine has more";
    const std::string error = testing::error_of([&] { train_alone(rows, options); });
    expect_named(error, solver == Solver::sgd ? "37" : "16");
  }
  run_threads(2, [&](Communicator& communicator) {
    Dataset data(rows);
    expect_named(testing::error_of([&] { kmeans(communicator, data, {.clusters = 1}); }), "13");
    expect_named(testing::error_of([&] { pca(communicator, data, {.components = 1}); }), "17");
  });
}

TEST_F(Checkpoint, IsNotReplacedByARunThatDiverged) {
  const std::vector<Rows> parts = cut_rows(sample_rows({.rows = 200, .classes = 0}), 2);
  TrainOptions run = options(scratch_.path("run"));
  run.loss = Loss::squares;
  train_in_simulation(parts, run);
  const std::string good = testing::contents_of(scratch_.path("run"));
  run.penalty = {};
  run.epochs = 100;
  const auto expect_divergence = [&] {
    const std::string error = testing::error_of([&] { train_in_simulation(parts, run); });
    EXPECT_NE(error.find("the training diverged in epoch"), std::string::npos) << error;
    EXPECT_NE(error.find("a rate below"), std::string::npos) << error;
  };
  for (const Schedule schedule : {Schedule::constant, Schedule::bold_driver, Schedule::adagrad}) {
    run.schedule = schedule;
    run.rate = schedule == Schedule::adagrad ? 1e30 : 1e6;
    run.checkpoint.resume = false;
    run.checkpoint.seconds = 1e9;
    expect_divergence();
    EXPECT_EQ(testing::contents_of(scratch_.path("run")), good);
    run.checkpoint.path = scratch_.path("often");
    run.checkpoint.seconds = 0;  // before every step, of weights that are finite yet
    expect_divergence();
    run.checkpoint.resume = true;  // what is there can be read, and diverges again
    expect_divergence();
    run.checkpoint.path = scratch_.path("run");
  }
}

TEST(Train, RefusesOptionsAndDataThatMakeNoSense) {
  const Rows rows = sample_rows({});
  const auto error_with = [&](const TrainOptions& options) {
    return testing::error_of([&] { train_alone(rows, options); });
  };
  EXPECT_EQ(error_with({.epochs = 0}), "epochs must be 1 or more");
  EXPECT_EQ(error_with({.rate = -1}), "rate must be above 0");
  EXPECT_EQ(error_with({.solver = Solver::scd, .threads = 2}), "threads must be 1 for scd");
  EXPECT_EQ(error_with({.loss = Loss::squares, .balanced = true}), "class weights must be left out for squares");
  EXPECT_EQ(error_with({.class_weights = {{7.0f, 2.0}}}), "class weight of label 7: no row has it");
  EXPECT_EQ(error_with({.penalty = {.l2 = 20}, .schedule = Schedule::constant}), "rate must be below 1/l2");
  EXPECT_NE(error_with({.aggregation = "dens"}).find("no algorithm for allreduce is called 'dens'"), std::string::npos);
  EXPECT_EQ(testing::error_of([] { train_alone(Rows(), {}); }), "the data has no rows");
  Rows same;
  same.end_row(1);
  EXPECT_NE(testing::error_of([&] { train_alone(same, {}); }).find("the same label"), std::string::npos);
}

}  // namespace
}  // namespace tulle::linear
