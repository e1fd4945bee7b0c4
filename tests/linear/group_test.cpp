// The ranks as solvers see them: what auto learns, and when.
#include "linear/group.hpp"

#include <gtest/gtest.h>

#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::linear {
namespace {

constexpr std::uint64_t kDimension = 1 << 16;

// `nnz` places in the same half of the vector on all ranks.
AnyStream some_of(std::uint32_t nnz, std::uint64_t dimension = kDimension) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < nnz; ++i) indices.push_back(i * 2);
  return Stream<float>::from_sorted<std::uint32_t>(dimension, indices, std::vector<float>(nnz, 1.0f));
}

// What each rank's next sum by auto is, after `earlier` sums in flight together and one alone.
std::vector<double> bytes_of_last_sum(std::uint32_t nnz, int earlier) {
  std::vector<double> bytes(4);
  SimWorld world({.ranks = 4, .profile = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}});
  world.run([&, nnz, earlier](Communicator& communicator) -> Task<> {
    Group group(communicator);
    for (int i = 0; i < earlier; ++i) group.start_sum(some_of(nnz), kAuto);
    while (group.in_flight() > 0) co_await group.finish_oldest();
    const double before = group.stats().bytes;
    group.start_sum(some_of(1), kAuto);
    co_await group.finish_oldest();
    bytes[static_cast<std::size_t>(communicator.rank())] = group.stats().bytes - before;
  });
  return bytes;
}

TEST(Group, SumsInFlightTeachAutoWhatTheNextWillBeLike) {
  // One value each: from nothing auto expects little and chooses a sparse row. After full vectors it expects more of
  // them and chooses a dense row, which sends all of the vector.
  for (const double bytes : bytes_of_last_sum(1, 0)) EXPECT_LT(bytes, kDimension);
  for (const double bytes : bytes_of_last_sum(kDimension / 2, 3)) EXPECT_GT(bytes, kDimension);
}

TEST(Group, SumsOfAnotherDimensionTeachNothing) {
  SimWorld world({.ranks = 4, .profile = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}});
  world.run([](Communicator& communicator) -> Task<> {
    Group group(communicator);
    for (int i = 0; i < 3; ++i) group.start_sum(some_of(kDimension / 2, 2 * kDimension), kAuto);
    while (group.in_flight() > 0) co_await group.finish_oldest();
    const double before = group.stats().bytes;
    group.start_sum(some_of(1), kAuto);
    co_await group.finish_oldest();
    EXPECT_LT(group.stats().bytes - before, kDimension);
  });
}

TEST(Group, TheFirstSumIsWhatRanksAgreedToExpect) {
  SimWorld world({.ranks = 4, .profile = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}});
  world.run([](Communicator& communicator) -> Task<> {
    Group group(communicator);
    const AnyStream expected = some_of(kDimension / 2);
    co_await group.expect(expected);
    const double before = group.stats().bytes;
    group.start_sum(some_of(1), kAuto);
    co_await group.finish_oldest();
    EXPECT_GT(group.stats().bytes - before, kDimension);
  });
}

TEST(Group, SumsInFlightStartFromTheSameKnowledgeOnAllRanks) {
  // On threads, sums end when they like; a rank that learned sooner than another would choose another row, and the
  // collective would fail.
  run_threads(3, [&](Communicator& communicator) {
    Group group(communicator);
    Task<> task = [](Group& all) -> Task<> {
      for (std::uint32_t i = 0; i < 60; ++i) {
        all.start_sum(some_of(i % 7 == 0 ? kDimension / 2 : 1), kAuto);
        co_await all.yield();
        if (all.in_flight() > 3) co_await all.finish_oldest();
      }
      while (all.in_flight() > 0) co_await all.finish_oldest();
    }(group);
    run_task(communicator, task);
  });
}

TEST(Group, BlockingSumsTeachThoseInFlight) {
  run_threads(4, [&](Communicator& communicator) {
    Group group(communicator);
    Task<> task = [](Group& all) -> Task<> {
      for (int i = 0; i < 3; ++i) {
        AnyStream stream = some_of(kDimension / 2);
        co_await all.sum(std::move(stream), kAuto);
      }
      const double before = all.stats().bytes;
      all.start_sum(some_of(1), kAuto);
      co_await all.finish_oldest();
      EXPECT_GT(all.stats().bytes - before, kDimension);
    }(group);
    run_task(communicator, task);
  });
}

}  // namespace
}  // namespace tulle::linear
