// States that survive: bytes, files, another number of ranks.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/temporary_directory.hpp"
#include "base/torn_file.hpp"
#include "gradient/saved_state.hpp"
#include "gradient/training.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::gradient {
namespace {

using namespace testing;
using tulle::testing::Killed;
using tulle::testing::TemporaryDirectory;
using tulle::testing::TornFile;
using tulle::testing::two_ranks_killed;

std::vector<Parameter> sample_parameters() {
  return {{"hidden", 3000, Role::hidden, 50}, {"output", 700, Role::output}, {"bias", 10, Role::bias_or_norm}};
}

Values sample_gradient(int rank, std::uint64_t step, ParameterId id) {
  return integer_gradient(sample_parameters()[id].size, rank, step, id);
}

// Each on a communicator of its own, so that all have the same channels, by which dice are drawn.
Synchronizer make(Communicator& communicator, const char* recipe) {
  return Synchronizer::make(communicator.split(0), sample_parameters(), parse_recipe(recipe),
                            {.seed = 3, .reproducible = true});
}

// Trains from step `from` on and gives the updates of every step.
std::vector<Values> train_steps(Synchronizer& synchronizer, std::uint64_t from, std::uint64_t to) {
  std::vector<Values> updates;
  const int rank = synchronizer.communicator().rank();
  for (std::uint64_t step = from; step < to; ++step) {
    for (ParameterId id = 0; id < 3; ++id) {
      const Values gradient = sample_gradient(rank, step, id);
      synchronizer.start(id, std::span<const float>(gradient));
    }
    synchronizer.end_step();
    for (ParameterId id = 0; id < 3; ++id) {
      updates.emplace_back(sample_parameters()[id].size);
      synchronizer.finish_into(id, updates.back());
    }
  }
  return updates;
}

std::vector<Values> kept_by(const Synchronizer& synchronizer) {
  std::vector<Values> kept;
  for (ParameterId id = 0; id < 3; ++id) {
    kept.push_back(copy_of(synchronizer.residual(id)));
    kept.push_back(copy_of(synchronizer.momentum(id)));
    kept.push_back(copy_of(synchronizer.outer_momentum(id)));
  }
  return kept;
}

void expect_resumes(const std::string& recipe) {
  run_threads(3, [&](Communicator& communicator) {
    Synchronizer uninterrupted = make(communicator, recipe.c_str());
    (void)train_steps(uninterrupted, 0, 3);
    const Buffer saved = uninterrupted.save_state();
    const std::vector<Values> expected = train_steps(uninterrupted, 3, 9);

    Synchronizer resumed = make(communicator, recipe.c_str());
    resumed.load_state(std::span(&saved, 1));
    EXPECT_EQ(resumed.steps(), 3u);
    EXPECT_EQ(train_steps(resumed, 3, 9), expected) << recipe;
    EXPECT_EQ(kept_by(resumed), kept_by(uninterrupted)) << recipe;
  });
}

class Resume : public ::testing::TestWithParam<const Preset*> {};

TEST_P(Resume, ContinuesBitForBit) { expect_resumes(std::string(GetParam()->name) + "|dense_below:0"); }

TEST(ResumeOf, ThresholdsContinuesBitForBit) { expect_resumes("redsync:1%|dense_below:0|search_from:1"); }

// With `reproducible` what is decided about layers depends on gradients alone.
TEST(ResumeOf, DecisionsContinuesBitForBit) {
  expect_resumes("topk:30%|dense_below:0|energy:0.9");
  expect_resumes("adaptive:topk:30%|dense_below:0");
  expect_resumes("adaptive:spardl:30%|energy:0.9");
}

TEST(ResumeOf, DecisionsThatAreDamagedIsRefused) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer one = make(communicator, "topk:30%|dense_below:0|energy:0.9");
    Synchronizer other = Synchronizer::make(
        communicator, sample_parameters(), parse_recipe("topk:30%|dense_below:100|energy:0.9"), {.first_channel = 100});
    const Buffer state = one.save_state();
    EXPECT_THROW(other.load_state(std::span(&state, 1)), Error);  // its layers are others
  });
}

// Checksums go by the numbers of steps, which a loaded state sets; finishing before end_step() must not show.
TEST(ResumeOf, ReplicaChecksComparesTheSameSteps) {
  run_threads(2, [](Communicator& communicator) {
    const SynchronizerOptions options{.fuse_below = 0, .replica_check_every = 2};
    Synchronizer saving = Synchronizer::make(communicator, {{"w", 100}}, parse_recipe("dense"), options);
    const auto step = [&](Synchronizer& synchronizer, std::uint64_t number, bool ends_first) {
      Values gradient = integer_gradient(100, communicator.rank(), number, 0);
      synchronizer.start(0, std::span<const float>(gradient));
      if (ends_first) synchronizer.end_step();
      synchronizer.finish_into(0, gradient);
      if (!ends_first) synchronizer.end_step();
    };
    for (std::uint64_t number = 0; number < 3; ++number) step(saving, number, true);
    const Buffer state = saving.save_state();
    Synchronizer loaded =
        Synchronizer::make(communicator, {{"w", 100}}, parse_recipe("dense"),
                           {.first_channel = saving.end_channel(), .fuse_below = 0, .replica_check_every = 2});
    loaded.load_state(std::span(&state, 1));
    for (std::uint64_t number = 3; number < 12; ++number) {
      EXPECT_NO_THROW(step(loaded, number, communicator.rank() == 0)) << "step " << number;
    }
  });
}

std::vector<const Preset*> all_presets() {
  std::vector<const Preset*> rows;
  for (const Preset& preset : presets()) rows.push_back(&preset);
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Presets, Resume, ::testing::ValuesIn(all_presets()),
                         [](const auto& row) { return std::string(row.param->name); });

// The states of `ranks` ranks after some steps.
std::vector<Buffer> states_of(int ranks, const char* recipe) {
  std::vector<Buffer> states(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, recipe);
    (void)train_steps(synchronizer, 0, 3);
    states[static_cast<std::size_t>(communicator.rank())] = synchronizer.save_state();
  });
  return states;
}

// Σ over ranks of what each keeps, by array.
std::vector<std::vector<double>> sums_after_loading(int ranks, const char* recipe, const std::vector<Buffer>& states) {
  std::vector<std::vector<Values>> kept(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, recipe);
    synchronizer.load_state(states);
    kept[static_cast<std::size_t>(communicator.rank())] = kept_by(synchronizer);
  });
  std::vector<std::vector<double>> sums;
  for (std::size_t array = 0; array < kept.front().size(); ++array) {
    std::vector<double>& sum = sums.emplace_back(kept.front()[array].size());
    for (const auto& rank : kept) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rank[array][i];
    }
  }
  return sums;
}

TEST(AnotherNumberOfRanks, LosesNothingThatIsPending) {
  const char* const recipe = "topk:2%|dense_below:0|momentum:0.5|aggregate:sum";
  const std::vector<Buffer> states = states_of(4, recipe);
  const auto before = sums_after_loading(4, recipe, states);
  EXPECT_NE(before.front(), std::vector<double>(3000));
  for (const int ranks : {1, 2, 3, 7})
    EXPECT_EQ(sums_after_loading(ranks, recipe, states), before) << ranks << " ranks";
}

TEST(AnotherNumberOfRanks, KeepsTheMeanOfWhatIsPending) {
  const char* const recipe = "topk:2%|dense_below:0";
  const std::vector<Buffer> states = states_of(4, recipe);
  const auto before = sums_after_loading(4, recipe, states);
  for (const int ranks : {2, 8}) {
    const auto after = sums_after_loading(ranks, recipe, states);
    for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(after[0][i] / ranks, before[0][i] / 4) << ranks << " ranks";
  }
}

// Newcomers hold nothing and do not count; of ranks that are put together the sums are.
TEST(AnotherNumberOfRanks, KeepsTheMeanOfSendersOfWhatIsPending) {
  const char* const recipe = "topk:2%|dense_below:0|exchange:gather|aggregate:mean_of_senders";
  const std::vector<Buffer> states = states_of(4, recipe);
  const auto before = sums_after_loading(4, recipe, states);
  EXPECT_NE(before.front(), std::vector<double>(3000));
  EXPECT_EQ(sums_after_loading(8, recipe, states), before);
  const auto fewer = sums_after_loading(2, recipe, states);
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(fewer[0][i], before[0][i] / 2);
}

TEST(AnotherNumberOfRanks, KeepsTheOuterMomentumWhichIsOnAllRanks) {
  const std::vector<Buffer> states = states_of(4, "diloco");
  const auto before = sums_after_loading(4, "diloco", states), after = sums_after_loading(2, "diloco", states);
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(after[2][i] / 2, before[2][i] / 4);
}

TEST(AnotherNumberOfRanks, TakesAllStatesInOrder) {
  std::vector<Buffer> states = states_of(4, "topk:2%|dense_below:0");
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    EXPECT_THROW(synchronizer.load_state(std::span(states).first(3)), Error);
    std::vector<Buffer> shuffled = states;
    std::swap(shuffled[0], shuffled[3]);
    EXPECT_THROW(synchronizer.load_state(shuffled), Error);
    EXPECT_NO_THROW(synchronizer.load_state(states));
  });
}

std::string refusal_of(Synchronizer& synchronizer, const Buffer& state) {
  try {
    synchronizer.load_state(std::span(&state, 1));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Buffer changed_at(const Buffer& state, std::size_t place) {
  Buffer changed = Buffer::copy_of(state.bytes());
  changed.as_mutable<std::byte>()[place] ^= std::byte{4};
  return changed;
}

TEST(DamagedState, IsRefusedAndTheOldOneStays) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    (void)train_steps(synchronizer, 0, 2);
    const Buffer state = synchronizer.save_state();
    (void)train_steps(synchronizer, 2, 3);
    const std::vector<Values> kept = kept_by(synchronizer);
    for (std::size_t place = 0; place < state.size(); place += place < 200 ? 1 : 97) {
      ASSERT_NE(refusal_of(synchronizer, changed_at(state, place)), "") << "a bit of byte " << place;
    }
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{31}, state.size() / 2, state.size() - 1}) {
      ASSERT_NE(refusal_of(synchronizer, Buffer::copy_of(state.bytes().first(size))), "") << size << " bytes";
    }
    EXPECT_EQ(kept_by(synchronizer), kept);
    EXPECT_EQ(synchronizer.steps(), 3u);
    EXPECT_EQ(refusal_of(synchronizer, state), "");
    EXPECT_EQ(synchronizer.steps(), 2u);
  });
}

TEST(ForeignState, GoesByNamesNotByNumbers) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    (void)train_steps(synchronizer, 0, 2);
    std::vector<Parameter> turned = sample_parameters();
    std::ranges::reverse(turned);
    Synchronizer other =
        Synchronizer::make(communicator, turned, parse_recipe("topk:2%|dense_below:0"), {.first_channel = 100});
    EXPECT_EQ(refusal_of(other, synchronizer.save_state()), "");
    EXPECT_EQ(copy_of(other.residual(2)), copy_of(synchronizer.residual(0)));
    EXPECT_EQ(copy_of(other.residual(0)), copy_of(synchronizer.residual(2)));
    turned[1].name = "input";
    Synchronizer foreign =
        Synchronizer::make(communicator, turned, parse_recipe("topk:2%|dense_below:0"), {.first_channel = 200});
    EXPECT_NE(refusal_of(foreign, synchronizer.save_state()).find("no parameter called input"), std::string::npos);
  });
}

TEST(SavedState, OfAParameterWithoutValuesCanBeLoaded) {
  run_threads(1, [](Communicator& communicator) {
    for (const char* const recipe : {"dgc|dense_below:0", "sparse5|dense_below:0", "redsync|dense_below:0"}) {
      Synchronizer synchronizer = Synchronizer::make(communicator, {{"nothing", 0}}, parse_recipe(recipe));
      synchronizer.start(0, std::span<const float>());
      synchronizer.end_step();
      (void)synchronizer.finish(0);
      EXPECT_EQ(refusal_of(synchronizer, synchronizer.save_state()), "") << recipe;
    }
  });
}

TEST(SavedState, IsLoadedWhereAStepHasBegun) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "three_lc|dense_below:0");
    const Buffer state = synchronizer.save_state();
    const Values gradient = sample_gradient(0, 0, 0);
    synchronizer.start(0, std::span<const float>(gradient));
    (void)synchronizer.finish(0);
    EXPECT_EQ(refusal_of(synchronizer, state), "");
    synchronizer.end_step();
    EXPECT_NO_THROW((void)synchronizer.finish(0));
  });
}

TEST(ForeignState, IsRefusedWithTheReason) {
  run_threads(1, [](Communicator& communicator) {
    Synchronizer plain = make(communicator, "topk:2%|dense_below:0");
    Synchronizer with_momentum = make(communicator, "topk:2%|dense_below:0|momentum:0.9");
    Synchronizer other = Synchronizer::make(communicator, {{"hidden", 3000}, {"output", 701}, {"bias", 10}},
                                            parse_recipe("topk"), {.first_channel = 100});
    EXPECT_NE(refusal_of(with_momentum, plain.save_state()).find("momentum was not saved"), std::string::npos);
    EXPECT_NE(refusal_of(plain, with_momentum.save_state()).find("would be lost"), std::string::npos);
    EXPECT_NE(refusal_of(other, plain.save_state()).find("state of output: the saved one has 700 values"),
              std::string::npos);
    const Values gradient(3000);
    plain.start(0, std::span<const float>(gradient));
    EXPECT_THROW((void)plain.save_state(), Error);
    plain.end_step();
    (void)plain.finish(0);
  });
}

TEST(Checkpoint, GoesThroughFilesOfEitherKindToAnyNumberOfRanks) {
  for (const CheckpointFiles files : {CheckpointFiles::one_per_rank, CheckpointFiles::one_for_all}) {
    const TemporaryDirectory directory;
    const std::string path = directory.path("state");
    std::vector<std::vector<Values>> kept(4);
    run_threads(4, [&](Communicator& communicator) {
      Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0|aggregate:sum");
      (void)train_steps(synchronizer, 0, 2);
      synchronizer.save_checkpoint(path, files);
      (void)train_steps(synchronizer, 2, 3);
      synchronizer.save_checkpoint(path, files);  // takes the place of the first
      const auto rank = static_cast<std::size_t>(communicator.rank());
      kept[rank] = kept_by(synchronizer);
      Synchronizer loaded = make(communicator, "topk:2%|dense_below:0|aggregate:sum");
      loaded.load_checkpoint(path);
      EXPECT_EQ(kept_by(loaded), kept[rank]);
      EXPECT_EQ(loaded.steps(), 3u);
    });
    run_threads(3, [&](Communicator& communicator) {
      Synchronizer loaded = make(communicator, "topk:2%|dense_below:0|aggregate:sum");
      loaded.load_checkpoint(path);
      Values expected = kept[static_cast<std::size_t>(communicator.rank())][0];
      if (communicator.rank() == 0) {
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += kept[3][0][i];
      }
      EXPECT_EQ(copy_of(loaded.residual(0)), expected);
    });
  }
}

// Trains from what is at the path, where there is something, up to that step and saves.
void train_and_save(const std::string& path, int ranks, std::uint64_t from, std::uint64_t to) {
  run_threads(ranks, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    if (from > 0) synchronizer.load_checkpoint(path);
    EXPECT_EQ(synchronizer.steps(), from);
    (void)train_steps(synchronizer, from, to);
    synchronizer.save_checkpoint(path);
  });
}

std::string refusal_of_files(const std::string& path) {
  std::string text;
  run_threads(1, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    try {
      synchronizer.load_checkpoint(path);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(Checkpoint, OfOtherRanksIsGoneOnceThereIsANewerOne) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("state");
  train_and_save(path, 4, 0, 2);
  train_and_save(path, 2, 2, 2);  // the same step
  EXPECT_FALSE(std::filesystem::exists(path + ".0-of-4"));
  train_and_save(path, 2, 2, 5);
  train_and_save(path, 3, 5, 6);
}

// As jobs leave them that are killed before they have removed older ones.
TEST(Checkpoint, OfTheMostStepsIsTakenWhereItIsWhole) {
  const TemporaryDirectory directory, others;
  const std::string path = directory.path("state");
  const auto copy = [](const TemporaryDirectory& from, const TemporaryDirectory& to) {
    using std::filesystem::copy_options;
    std::filesystem::copy(from.path(), to.path(), copy_options::recursive | copy_options::overwrite_existing);
  };
  train_and_save(path, 4, 0, 3);
  copy(directory, others);
  train_and_save(path, 3, 3, 3);
  copy(directory, others);
  train_and_save(path, 2, 3, 5);
  copy(others, directory);
  EXPECT_EQ(refusal_of_files(path), "") << "two has five steps";
  std::filesystem::remove(path + ".1-of-2");
  EXPECT_NE(refusal_of_files(path).find("several jobs with as many steps"), std::string::npos) << "four and three";
  std::filesystem::remove(path + ".2-of-3");
  EXPECT_EQ(refusal_of_files(path), "") << "four alone is whole";
  std::filesystem::remove(path + ".3-of-4");
  EXPECT_NE(refusal_of_files(path).find("some are missing"), std::string::npos);
}

// Files of two steps of two ranks, and what a synchronizer says and goes on from.
class SavedTwice : public ::testing::Test {
 protected:
  SavedTwice() {
    run_threads(2, [&](Communicator& communicator) {
      Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
      for (const std::uint64_t step : {2, 4}) {
        (void)train_steps(synchronizer, step - 2, step);
        synchronizer.save_checkpoint(path_);
      }
    });
    for (const std::string& file : names_) files_.emplace_back(file);
  }

  struct Loaded {
    std::uint64_t steps = 0;
    std::string told;  ///< by the call, or by its error
  };
  Loaded load() {
    std::vector<Loaded> loaded(2);
    run_threads(2, [&](Communicator& communicator) {
      Loaded& mine = loaded[static_cast<std::size_t>(communicator.rank())];
      Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
      try {
        mine.told = synchronizer.load_checkpoint(path_);
      } catch (const Error& error) {
        mine.told = error.what();
      }
      mine.steps = synchronizer.steps();
    });
    EXPECT_EQ(loaded[0].steps, loaded[1].steps);
    EXPECT_EQ(loaded[0].told, loaded[1].told);
    return loaded[0];
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_.path("state");
  std::vector<std::string> names_ = {path_ + ".0-of-2", path_ + ".1-of-2"};
  std::vector<TornFile> files_;
};

TEST_F(SavedTwice, ASaveThatIsKilledLeavesAStepThatAllRanksHave) {
  for (const auto& [first, second] : two_ranks_killed()) {
    files_[0].leave(first);
    files_[1].leave(second);
    const bool is_written = first != Killed::writing && second != Killed::writing;
    EXPECT_EQ(load().steps, is_written ? 4u : 2u) << static_cast<int>(first) << static_cast<int>(second);
  }
}

TEST_F(SavedTwice, WhereTheNewestIsDamagedOrOlderTheStepBeforeIsTakenAndTheReasonGiven) {
  EXPECT_EQ(load().told, "");
  files_[1].damage();
  EXPECT_EQ(load().steps, 2u);
  EXPECT_EQ(load().told, names_[1] + ": state of a synchronizer: it is damaged");
  std::filesystem::rename(names_[1] + ".before", names_[1]);
  EXPECT_EQ(load().steps, 2u);
  EXPECT_NE(load().told.find("of which not all ranks have a file"), std::string::npos);
  std::filesystem::remove(names_[0] + ".before");
  EXPECT_NE(load().told.find("ranks have no checkpoint in common: rank 0 has step 4 of run "), std::string::npos);
  EXPECT_EQ(load().steps, 0u);
}

TEST_F(SavedTwice, WhatALoadWentOnFromStaysUntilTheNextFileIsThere) {
  files_[1].damage();
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    EXPECT_NE(synchronizer.load_checkpoint(path_), "");
    (void)train_steps(synchronizer, 2, 3);
    synchronizer.save_checkpoint(path_);
  });
  EXPECT_EQ(load().steps, 3u);
  files_[0].damage();
  EXPECT_EQ(load().steps, 2u);
}

TEST_F(SavedTwice, FilesOfTwoRunsOfEqualStepsAreNotMixed) {
  const std::string mine = tulle::testing::contents_of(names_[0]);
  train_and_save(path_, 2, 0, 4);
  train_and_save(path_, 2, 4, 4);
  std::ofstream(names_[0], std::ios::binary) << mine;
  std::filesystem::remove(names_[0] + ".before");
  EXPECT_NE(load().told.find("ranks have no checkpoint in common"), std::string::npos) << load().told;
}

TEST_F(SavedTwice, FilesThatWereSwappedAreSaidToBe) {
  std::filesystem::rename(names_[0], path_ + ".kept");
  std::filesystem::rename(names_[1], names_[0]);
  std::filesystem::rename(path_ + ".kept", names_[1]);
  EXPECT_EQ(load().told,
            "the state is that of rank 1 of 2, and this is rank 0: files of ranks were swapped, or copied "
            "for one another");
}

TEST(Checkpoint, OfAllRanksInOneFileHasGenerationsToo) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("state");
  run_threads(2, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    for (const std::uint64_t step : {2, 4}) {
      (void)train_steps(synchronizer, step - 2, step);
      synchronizer.save_checkpoint(path, CheckpointFiles::one_for_all);
    }
  });
  const auto loaded_steps = [&](int ranks) {
    std::uint64_t steps = 0;
    run_threads(ranks, [&](Communicator& communicator) {
      Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
      (void)synchronizer.load_checkpoint(path);
      if (communicator.rank() == 0) steps = synchronizer.steps();
    });
    return steps;
  };
  const std::string newest = tulle::testing::contents_of(path);
  const TornFile file(path);
  file.damage();
  EXPECT_EQ(loaded_steps(2), 2u);
  EXPECT_EQ(loaded_steps(3), 2u);
  for (const Killed killed : {Killed::writing, Killed::written, Killed::moved, Killed::placed}) {
    file.leave(killed);
    EXPECT_EQ(loaded_steps(2), killed == Killed::writing ? 2u : 4u) << static_cast<int>(killed);
  }
  // What is there of the newest ends between the states of two ranks.
  file.leave(Killed::writing);
  const std::uint64_t first = state_bytes(std::as_bytes(std::span(newest)));
  std::ofstream(path + ".part", std::ios::binary) << newest.substr(0, first);
  EXPECT_EQ(loaded_steps(2), 2u);
}

TEST(Checkpoint, ThatOneRankCannotReadIsRefusedByAll) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("state");
  run_threads(3, [&](Communicator& communicator) {
    Synchronizer synchronizer = make(communicator, "topk:2%|dense_below:0");
    (void)train_steps(synchronizer, 0, 2);
    synchronizer.save_checkpoint(path);
    if (communicator.rank() == 1) std::ofstream(path + ".1-of-3", std::ios::app) << "more";
    (void)train_steps(synchronizer, 2, 3);
    const std::vector<Values> kept = kept_by(synchronizer);
    EXPECT_THROW(synchronizer.load_checkpoint(path), Error);
    EXPECT_THROW(synchronizer.load_checkpoint(directory.path("nothing")), Error);
    EXPECT_THROW(synchronizer.save_checkpoint(directory.path("no/such/place")), Error);
    EXPECT_EQ(kept_by(synchronizer), kept);
    (void)train_steps(synchronizer, 3, 4);  // the communicator is as it was
  });
}

}  // namespace
}  // namespace tulle::gradient
