// Files in generations, and the lock of who writes them.
#include "base/generations.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.hpp"
#include "base/output_file.hpp"
#include "error_of.hpp"
#include "temporary_directory.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::error_of;
using testing::TemporaryDirectory;

// A file is its run and its step as text; anything else is damaged.
RunStep read(const std::string& path) {
  std::istringstream text(contents_of(path));
  RunStep what;
  if (text >> what.run >> what.step) return what;
  throw Error(ErrorKind::bad_input, path + ": the checkpoint is damaged");
}

void put(const std::string& path, const RunStep& what) { std::ofstream(path) << what.run << ' ' << what.step; }

void save(GenerationWriter& writer, const std::string& path, const RunStep& what) {
  writer.prepare(path);
  OutputFile file(path);
  const std::string text = std::to_string(what.run) + ' ' + std::to_string(what.step);
  file.write(std::as_bytes(std::span(text)));
  writer.commit(file, what);
}

std::vector<RunStep> on_disk(const std::string& path) {
  std::vector<RunStep> found;
  for (const Generation& file : read_generations(path, read).files) {
    if (file.what) found.push_back(*file.what);
  }
  return found;
}

Generations of_rank(std::vector<RunStep> files) {
  Generations rank{.path = "run", .files = {}};
  for (const RunStep& what : files) rank.files.push_back({.path = "run", .what = what, .problem = {}});
  return rank;
}

TEST(Generations, TheOneBeforeStaysAndTheOneBeforeThatGoes) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("run");
  GenerationWriter writer;
  for (const std::uint64_t step : {10, 20, 30}) save(writer, path, {7, step});
  EXPECT_EQ(on_disk(path), (std::vector<RunStep>{{7, 30}, {7, 20}}));
  save(writer, path, {7, 30});  // as at the end of a run, whose last step was just saved
  EXPECT_EQ(on_disk(path), (std::vector<RunStep>{{7, 30}, {7, 20}}));
}

// Between its renames a commit leaves one of these.
TEST(Generations, AreThereWheneverACommitIsKilled) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("run");
  const std::vector<RunStep> both = {{7, 20}, {7, 10}};
  put(path, both[1]);
  put(path + ".part", both[0]);
  EXPECT_EQ(on_disk(path), both) << "before the first";
  fs::rename(path, path + ".before");
  EXPECT_EQ(on_disk(path), both) << "between the two";
  fs::rename(path + ".part", path);
  EXPECT_EQ(on_disk(path), both) << "after the second";
  std::ofstream(path + ".part") << "half";
  EXPECT_EQ(on_disk(path), both) << "while the next is written";
}

TEST(Generations, WhatARunGoesOnFromStaysUntilItHasWrittenTwice) {
  for (const std::string chosen : {"", ".part", ".before"}) {
    const TemporaryDirectory directory;
    const std::string path = directory.path("run");
    for (const std::string ending : {"", ".part", ".before"}) {
      if (ending == chosen) put(path + ending, {7, 10});
      if (ending != chosen) std::ofstream(path + ending) << "damaged";
    }
    GenerationWriter writer;
    writer.goes_on_from(read_generations(path, read), {7, 10});
    writer.prepare(path);
    EXPECT_EQ(on_disk(path).size(), 1u) << chosen;
    save(writer, path, {8, 20});
    EXPECT_EQ(on_disk(path), (std::vector<RunStep>{{8, 20}, {7, 10}})) << chosen;
    save(writer, path, {8, 30});
    EXPECT_EQ(on_disk(path), (std::vector<RunStep>{{8, 30}, {8, 20}})) << chosen;
  }
}

TEST(Generations, TheNewestOfOneRunThatAllHaveIsTaken) {
  const auto newest = [](std::vector<Generations> ranks) { return newest_common(ranks); };
  EXPECT_FALSE(newest({of_rank({}), of_rank({})}));
  const auto equal = newest({of_rank({{1, 20}, {1, 10}}), of_rank({{1, 20}, {1, 10}})});
  EXPECT_EQ(equal->what, (RunStep{1, 20}));
  EXPECT_EQ(equal->note, "");
  const auto torn = newest({of_rank({{1, 20}, {1, 10}}), of_rank({{1, 10}})});
  EXPECT_EQ(torn->what, (RunStep{1, 10}));
  EXPECT_EQ(torn->note, "run is of step 20 of run 00000001, of which not all ranks have a file");
  // Two runs of equal steps, each killed between the renames of its ranks.
  const auto mixed = newest({of_rank({{2, 20}, {1, 10}}), of_rank({{3, 20}, {1, 10}})});
  EXPECT_EQ(mixed->what, (RunStep{1, 10}));
  Generations damaged = of_rank({{1, 20}, {1, 10}});
  damaged.files.front() = {.path = "run", .what = {}, .problem = "run: the checkpoint is damaged"};
  const auto older = newest({of_rank({{1, 20}, {1, 10}}), damaged});
  EXPECT_EQ(older->what, (RunStep{1, 10}));
  EXPECT_EQ(older->note, "run: the checkpoint is damaged");
}

TEST(Generations, WithoutOneInCommonSayWhatIsThere) {
  const auto refusal = [](std::vector<Generations> ranks) { return error_of([&] { (void)newest_common(ranks); }); };
  EXPECT_EQ(refusal({of_rank({{1, 20}}), of_rank({{2, 20}, {2, 10}})}),
            "run: ranks have no checkpoint in common: rank 0 has step 20 of run 00000001, rank 1 has step 20 of run "
            "00000002 and step 10 of run 00000002. They are of several runs; remove them to start from the beginning");
  EXPECT_NE(refusal({of_rank({{1, 20}}), of_rank({})}).find("run is not there: some ranks have no checkpoint"),
            std::string::npos);
  Generations damaged = of_rank({{1, 20}});
  damaged.files.front() = {.path = "run", .what = {}, .problem = "run: the checkpoint is damaged"};
  EXPECT_EQ(refusal({of_rank({{1, 20}}), damaged}), "run: the checkpoint is damaged");
}

TEST(Generations, TravelAsText) {
  Generations sent = of_rank({{1, 20}, {0xffffffff, 10}});
  sent.files.push_back({.path = "run.before", .what = {}, .problem = "not \xff utf-8"});
  const Generations come = decode_generations(encode(sent));
  EXPECT_EQ(come.path, "run");
  ASSERT_EQ(come.files.size(), 3u);
  EXPECT_EQ(come.files[1].what, sent.files[1].what);
  EXPECT_FALSE(come.files[2].what);
  EXPECT_NE(come.files[2].problem.find("utf-8"), std::string::npos);
}

TEST(OutputFile, ThroughALinkReplacesWhatItLeadsTo) {
  const TemporaryDirectory directory, disk;
  const std::string path = directory.path("run"), target = disk.path("here");
  put(target, {1, 10});
  fs::create_symlink(target, directory.path("other"));
  fs::create_symlink("other", path);
  GenerationWriter writer;
  save(writer, path, {1, 20});
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(read(target), (RunStep{1, 20}));
  EXPECT_EQ(on_disk(path), (std::vector<RunStep>{{1, 20}, {1, 10}}));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 2) << "two links";
}

TEST(FileLock, KeepsASecondJobOutAndNamesTheFirst) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("run");
  {
    const FileLock lock(path);
    const std::string error = error_of([&] { const FileLock second(path); });
    EXPECT_NE(error.find(path + ": another job writes this checkpoint: process " + std::to_string(::getpid())),
              std::string::npos)
        << error;
  }
  EXPECT_FALSE(fs::exists(path + ".lock"));
  const FileLock again(path);
}

TEST(FileLock, OfAProcessThatWasKilledIsFree) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("run");
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(path);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(fs::exists(path + ".lock"));
  const FileLock lock(path);
}

}  // namespace
}  // namespace tulle
