// Messages of every shape between the ranks of an MPI job.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "comm_mpi/mpi_fixture.hpp"

namespace tulle {
namespace {

const std::size_t kThreshold = MpiOptions().detach_bytes;

void shift(Communicator& communicator, const std::vector<std::size_t>& lengths) {
  run_operation(communicator, [&](Operation& operation) { return shift_right(operation, lengths); });
}

TEST(MpiMessages, RankAndSizeAreThoseOfTheMpiCommunicator) {
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Communicator communicator = test_communicator();
  EXPECT_EQ(communicator.rank(), rank);
  EXPECT_EQ(communicator.size(), size);
  EXPECT_EQ(communicator.engine()->transport().name(), "mpi");
}

TEST(MpiMessages, AnOperationWithoutMessagesEnds) {
  Communicator communicator = test_communicator();
  run_operation(communicator, [](Operation&) -> Task<> { co_return; });
}

class MpiMessageShapes : public testing::TestWithParam<std::vector<std::size_t>> {};

TEST_P(MpiMessageShapes, ArriveAsTheyWereSent) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  shift(communicator, GetParam());
  shift(communicator, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, MpiMessageShapes,
                         testing::Values(std::vector<std::size_t>{},                // no segment
                                         std::vector<std::size_t>{0},               // an empty one
                                         std::vector<std::size_t>{1},               //
                                         std::vector<std::size_t>{100, 3, 0, 17},   // with padding
                                         std::vector<std::size_t>{kThreshold - 1},  // the largest in an envelope
                                         std::vector<std::size_t>{kThreshold},      // the smallest detached
                                         std::vector<std::size_t>{kThreshold + 1},  //
                                         std::vector<std::size_t>{5'000'000},       //
                                         std::vector<std::size_t>{5'000'000, 7, 1'000'003, 0,
                                                                  9},  // detached before others
                                         std::vector<std::size_t>{24, 400'000, kThreshold - 1, 400'000}));

TEST(MpiMessages, AThousandSegmentsArriveAsTheyWereSent) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  std::vector<std::size_t> lengths(1000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i % 97;
  lengths[500] = kThreshold + 5;
  shift(communicator, lengths);
}

TEST(MpiMessages, SegmentsInAnEnvelopeStartAtMultiplesOfEight) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  run_operation(communicator, [](Operation& operation) -> Task<> {
    operation.send(right_of(operation), 0, pattern_segments({3, 5, 24, 1, 8}, 1), 0);
    const Incoming incoming = co_await operation.receive(left_of(operation), 0);
    for (const Buffer& segment : incoming.segments) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.data()) % 8, 0u);
    }
  });
}

TEST(MpiMessages, LargerThanOneChunkTheyArriveInPieces) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator({.detach_bytes = 100, .chunk_bytes = 1000});
  shift(communicator, {12'345});
  shift(communicator, {1000, 2000, 2001, 99});
  shift(communicator, std::vector<std::size_t>(30, 99));  // small, but together more than a chunk
}

TEST(MpiMessages, ADetachedSegmentIsReceivedWhereTheOperationWantsIt) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  const std::size_t bytes = 300'000;
  run_operation(communicator, [&](Operation& operation) -> Task<> {
    const Buffer block = Buffer::allocate(3 * bytes);
    std::vector<std::size_t> asked;
    const Operation::Landing landing(
        operation, [&](Step, std::span<const Buffer> arrived, std::size_t segment, std::uint64_t size) {
          EXPECT_EQ(arrived.front().size(), 16u);  // the segments before it are there to decide by
          EXPECT_TRUE(std::ranges::all_of(arrived.subspan(1), &Buffer::empty));  // and those to come are not
          asked.push_back(segment);
          return size == bytes ? block.slice(bytes, bytes) : Buffer::allocate(size - 1);  // of no use, and not used
        });
    const std::vector<std::size_t> lengths = {16, bytes, bytes + 1};
    // The landing is in place on all ranks before anything large is sent.
    operation.send(left_of(operation), 0, {}, 0);
    co_await operation.receive(right_of(operation), 0);
    operation.send(right_of(operation), 1, pattern_segments(lengths, seed_of(operation.rank())), 0);
    const Incoming incoming = co_await operation.receive(left_of(operation), 1);
    EXPECT_TRUE(same_bytes(incoming.segments, pattern_segments(lengths, seed_of(left_of(operation)))));
    EXPECT_EQ(incoming.segments[1].data(), block.data() + bytes);
    EXPECT_EQ(asked, (std::vector<std::size_t>{1, 2}));
  });
}

TEST(MpiMessages, StepsMayBeReceivedInAnotherOrderThanSent) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  run_operation(communicator, [](Operation& operation) -> Task<> {
    const auto lengths_of = [](int step) {
      return std::vector<std::size_t>{step % 2 == 0 ? 50'000u * static_cast<unsigned>(step) : 10u};
    };
    for (int step = 9; step >= 0; --step) {
      operation.send(right_of(operation), static_cast<Step>(step),
                     pattern_segments(lengths_of(step), static_cast<std::uint64_t>(step)), 0);
    }
    for (int step = 0; step < 10; ++step) {
      const Incoming incoming = co_await operation.receive(left_of(operation), static_cast<Step>(step));
      EXPECT_TRUE(same_bytes(incoming.segments, pattern_segments(lengths_of(step), static_cast<std::uint64_t>(step))))
          << step;
    }
  });
}

TEST(MpiMessages, AThousandToEachSideArriveWhole) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  run_operation(communicator, [](Operation& operation) -> Task<> {
    const auto lengths_of = [](int i) {
      const std::size_t large = i % 50 == 7 ? kThreshold + static_cast<std::size_t>(i) : 0;
      return std::vector<std::size_t>{static_cast<std::size_t>(i % 331), large, static_cast<std::size_t>(i)};
    };
    const auto seed = [](int rank, int i) { return seed_of(rank) + static_cast<std::uint64_t>(i); };
    const auto to_right = [](int i) { return static_cast<Step>(2 * i); };
    const auto to_left = [](int i) { return static_cast<Step>(2 * i + 1); };
    for (int i = 0; i < 1000; ++i) {
      operation.send(right_of(operation), to_right(i), pattern_segments(lengths_of(i), seed(operation.rank(), i)), 0);
      operation.send(left_of(operation), to_left(i), pattern_segments(lengths_of(i), seed(operation.rank(), i)), 0);
    }
    for (int i = 0; i < 1000; ++i) {
      const Incoming from_left = co_await operation.receive(left_of(operation), to_right(i));
      EXPECT_TRUE(same_bytes(from_left.segments, pattern_segments(lengths_of(i), seed(left_of(operation), i)))) << i;
      const Incoming from_right = co_await operation.receive(right_of(operation), to_left(i));
      EXPECT_TRUE(same_bytes(from_right.segments, pattern_segments(lengths_of(i), seed(right_of(operation), i)))) << i;
    }
  });
}

TEST(MpiMessages, ManyOperationsInFlightEndInAnyOrder) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  const std::vector<std::vector<std::size_t>> shapes = {{1'000'000}, {8}, {200'000, 8}, {}, {3'000'000}, {70'000}};
  std::vector<std::shared_ptr<Operation>> operations;
  for (const auto& lengths : shapes) {
    operations.push_back(
        communicator.start({.checksum = true}, [&](Operation& operation) { return shift_right(operation, lengths); }));
  }
  std::reverse(operations.begin(), operations.end());
  for (const auto& operation : operations) communicator.engine()->wait(*operation);
}

TEST(MpiMessages, SplitHalvesExchangeAmongThemselves) {
  Communicator world = test_communicator();
  Communicator half = world.split(world.rank() % 2);
  EXPECT_EQ(half.size(), world.rank() % 2 == 0 ? (world.size() + 1) / 2 : world.size() / 2);
  EXPECT_EQ(half.rank(), world.rank() / 2);
  if (half.size() > 1) shift(half, {10, 500'000});
  if (world.size() > 1) shift(world, {500'000, 10});
}

TEST(MpiMessages, OfTheCallersAndOfOtherCommunicatorsDoNotMix) {
  TULLE_NEEDS_RANKS(2);
  Communicator one = test_communicator();
  Communicator other = test_communicator();
  const int right = (one.rank() + 1) % one.size(), left = (one.rank() + one.size() - 1) % one.size();
  std::array<int, 3> got{}, sent{};
  std::array<MPI_Request, 6> requests{};
  for (int tag = 0; tag < 3; ++tag) {
    const auto i = static_cast<std::size_t>(tag);
    sent[i] = 100 * one.rank() + tag;
    MPI_Irecv(&got[i], 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(&sent[i], 1, MPI_INT, right, tag, MPI_COMM_WORLD, &requests[3 + i]);
  }
  shift(one, {40});
  shift(other, {100'000});
  shift(one, {100'000});
  MPI_Waitall(6, requests.data(), MPI_STATUSES_IGNORE);
  EXPECT_EQ(got, (std::array<int, 3>{100 * left, 100 * left + 1, 100 * left + 2}));
}

TEST(MpiMessages, TakeNoNewMemoryInTheSteadyState) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  const auto round = [&] { shift(communicator, {100, 300'000, 20}); };
  for (int i = 0; i < 50; ++i) round();
  const std::uint64_t before = pool_stats().system_allocations;
  for (int i = 0; i < 50; ++i) round();
  EXPECT_LE(pool_stats().system_allocations - before, 2u);  // one rank may run ahead further than it did before
}

TEST(MpiMessages, ACommunicatorThatEndsWellGivesItsDuplicateBack) {
  const MpiCommWitness witness;
  {
    Communicator communicator = mpi_communicator(witness.comm());
    EXPECT_EQ(witness.freed_duplicates(), 0);
    if (communicator.size() > 1) shift(communicator, {10, 100'000});
  }
  EXPECT_EQ(witness.freed_duplicates(), 1);
}

TEST(MpiMessages, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(mpi_communicator(MPI_COMM_WORLD, {.detach_bytes = 0}), Error);
  EXPECT_THROW(mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 7}), Error);
  EXPECT_THROW(mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = std::uint64_t{1} << 31}), Error);
}

}  // namespace
}  // namespace tulle
