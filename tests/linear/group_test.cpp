// The ranks as solvers see them: what auto learns, and when.
#include "linear/group.hpp"

#include <gtest/gtest.h>

#include "tulle/comm/sim.hpp"
#include "tulle/comm/threads.hpp"

namespace tulle::linear {
namespace {

constexpr std::uint64_t kDimension = 1 << 16;

// `nnz` places in the same half of the vector on all ranks.
AnyStream some_of(std::uint32_t nnz) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < nnz; ++i) indices.push_back(i * 2);
  return Stream<float>::from_sorted<std::uint32_t>(kDimension, indices, std::vector<float>(nnz, 1.0f));
}

// What each rank's next sum by auto is, after `earlier` sums in flight together and one alone.
std::vector<double> bytes_of_last_sum(std::uint32_t nnz, int earlier) {
  std::vector<double> bytes(4);
  SimWorld world({.ranks = 4, .profile = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}});
  world.run([&, nnz, earlier](Communicator& communicator) -> Task<> {
    Group group(communicator, Waiting::awaits);
    for (int i = 0; i < earlier; ++i) group.start_sum(some_of(nnz), kAuto);
    while (group.in_flight() > 0) co_await group.finish_sum();
    const double before = group.stats().bytes;
    group.start_sum(some_of(1), kAuto);
    co_await group.finish_sum();
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

TEST(Group, SumsInFlightStartFromTheSameKnowledgeOnAllRanks) {
  // On threads, sums end when they like; a rank that learned sooner than another would choose another row, and the
  // collective would fail.
  run_threads(3, [&](Communicator& communicator) {
    Group group(communicator, Waiting::blocks);
    run_blocking([](Group& all) -> Task<> {
      for (std::uint32_t i = 0; i < 60; ++i) {
        all.start_sum(some_of(i % 7 == 0 ? kDimension / 2 : 1), kAuto);
        all.progress();
        if (all.in_flight() > 3) co_await all.finish_sum();
      }
      while (all.in_flight() > 0) co_await all.finish_sum();
    }(group));
  });
}

TEST(Group, BlockingSumsTeachThoseInFlight) {
  run_threads(4, [&](Communicator& communicator) {
    Group group(communicator, Waiting::blocks);
    run_blocking([](Group& all) -> Task<> {
      for (int i = 0; i < 3; ++i) {
        AnyStream stream = some_of(kDimension / 2);
        co_await all.sum(std::move(stream), kAuto);
      }
      const double before = all.stats().bytes;
      all.start_sum(some_of(1), kAuto);
      co_await all.finish_sum();
      EXPECT_GT(all.stats().bytes - before, kDimension);
    }(group));
  });
}

}  // namespace
}  // namespace tulle::linear
