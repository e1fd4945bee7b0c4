// What goes wrong on one rank is told on all, and nobody hangs.
#include <gtest/gtest.h>

#include <string>

#include "comm_mpi/mpi_fixture.hpp"

namespace tulle {
namespace {

bool contains(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

// Until all ranks are here, so that what one test leaves behind does not disturb the next one's clock.
class MpiFailures : public testing::Test {
 protected:
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }
};

TEST_F(MpiFailures, RanksThatDisagreeAreToldOnAllRanksWithBothSides) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  CallSignature signature;
  signature.dimension = communicator.rank() == communicator.size() - 1 ? 999 : 1000;
  const auto error = error_of_operation(communicator, everyone_to_everyone, signature);
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->kind() == ErrorKind::mismatch || error->kind() == ErrorKind::peer_failed) << error->what();
  EXPECT_TRUE(contains(*error, " 999 ") && contains(*error, " 1000 ")) << error->what();

  const auto later = error_of_operation(communicator, everyone_to_everyone);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->kind(), ErrorKind::broken);
}

TEST_F(MpiFailures, ABrokenCommunicatorKeepsItsDuplicateSoThatNoOtherReceivesItsMessages) {
  TULLE_NEEDS_RANKS(2);
  static MpiCommWitness* const witness = new MpiCommWitness;  // as long as the duplicate
  {
    Communicator communicator = mpi_communicator(witness->comm());
    CallSignature signature;
    signature.dimension = communicator.rank() == 0 ? 1 : 2;
    EXPECT_TRUE(error_of_operation(communicator, everyone_to_everyone, signature));
  }
  int freed_everywhere = 0;
  const int freed = witness->freed_duplicates();
  MPI_Allreduce(&freed, &freed_everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  EXPECT_EQ(freed_everywhere, 0);
}

TEST_F(MpiFailures, ARankThatNeverCallsIsNamedWhenTheDeadlinePasses) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  communicator.set_default_deadline(1);
  const int absent = communicator.size() - 1;
  if (communicator.rank() == absent) return;
  const double begin = MPI_Wtime();
  const auto error = error_of_operation(communicator, everyone_to_everyone);
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->kind() == ErrorKind::deadline || error->kind() == ErrorKind::peer_failed) << error->what();
  EXPECT_TRUE(contains(*error, "rank " + std::to_string(absent))) << error->what();
  EXPECT_LT(MPI_Wtime() - begin, 5);
}

// Rank 0 sends `message` to rank 1 behind the back of an operation of all ranks, which all then see fail.
void expect_all_ranks_refuse(Message message, const std::string& reason) {
  Communicator communicator = test_communicator();
  if (communicator.rank() == 0) communicator.engine()->transport().send(1, std::move(message));
  const auto error = error_of_operation(communicator, [](Operation& operation) -> Task<> {
    co_await operation.receive(right_of(operation), 0);  // that nobody sends
  });
  ASSERT_TRUE(error);
  EXPECT_TRUE(contains(*error, "rank 0")) << error->what();
  EXPECT_TRUE(contains(*error, reason)) << error->what();
}

Message message_with_head_of(const std::vector<std::size_t>& announced, const std::vector<std::size_t>& sent) {
  return {encode_message_head({}, pattern_segments(announced, 1)), pattern_segments(sent, 1), nullptr, 0};
}

TEST_F(MpiFailures, BytesThatAreNoMessageAreRefused) {
  TULLE_NEEDS_RANKS(2);
  expect_all_ranks_refuse({pattern(100, 1), {}, nullptr, 0}, "magic");
}

TEST_F(MpiFailures, AnEmptyMpiMessageIsRefused) {
  TULLE_NEEDS_RANKS(2);
  expect_all_ranks_refuse({}, "cut off");
}

TEST_F(MpiFailures, AnEnvelopeThatIsCutOffIsRefused) {
  TULLE_NEEDS_RANKS(2);
  expect_all_ranks_refuse(message_with_head_of({100, 50}, {100, 30}), "announced");
}

TEST_F(MpiFailures, AnEnvelopeThatIsTooLongIsRefused) {
  TULLE_NEEDS_RANKS(2);
  expect_all_ranks_refuse(message_with_head_of({100, 50}, {100, 80}), "announced");
}

TEST_F(MpiFailures, ADetachedSegmentThatIsCutOffIsRefused) {
  TULLE_NEEDS_RANKS(2);
  expect_all_ranks_refuse(message_with_head_of({200'000}, {180'000}), "cut off");
}

TEST_F(MpiFailures, ADetachedSegmentThatIsTooLongIsRefused) {
  TULLE_NEEDS_RANKS(2);
  expect_all_ranks_refuse(message_with_head_of({180'000}, {200'000}), "MPI_Irecv");
}

TEST_F(MpiFailures, ALengthThatNoMemoryHoldsIsRefused) {
  TULLE_NEEDS_RANKS(2);
  Message message;
  Segments segments;
  segments.push_back(Buffer::phantom((std::size_t{1} << 48) - 1));
  message.head = encode_message_head({}, segments);
  expect_all_ranks_refuse(std::move(message), "");
}

TEST_F(MpiFailures, APhantomBufferCannotBeSent) {
  TULLE_NEEDS_RANKS(2);
  Communicator communicator = test_communicator();
  const auto error = error_of_operation(communicator, [](Operation& operation) -> Task<> {
    Segments segments;
    segments.push_back(Buffer::phantom(100));
    operation.send(right_of(operation), 0, std::move(segments), 0);
    co_return;
  });
  ASSERT_TRUE(error);
  EXPECT_TRUE(contains(*error, "phantom")) << error->what();
}

TEST_F(MpiFailures, ACommunicatorEndsThoughNobodyTakesItsMessages) {
  TULLE_NEEDS_RANKS(2);
  const double begin = MPI_Wtime();
  {
    Communicator communicator = test_communicator();
    if (communicator.rank() == 0) {
      communicator.engine()->transport().send(1, message_with_head_of({5'000'000}, {5'000'000}));
    }
  }
  EXPECT_LT(MPI_Wtime() - begin, 5);
  Communicator next = test_communicator();
  run_operation(next, everyone_to_everyone);
}

TEST_F(MpiFailures, ACommunicatorEndsInTheMiddleOfAReceive) {
  TULLE_NEEDS_RANKS(2);
  {
    Communicator communicator = test_communicator();
    if (communicator.rank() == 0) {
      communicator.engine()->transport().send(1, message_with_head_of({5'000'000}, {}));
    } else if (communicator.rank() == 1) {
      while (!communicator.engine()->progress()) {
      }
    }
  }
  Communicator next = test_communicator();
  run_operation(next, everyone_to_everyone);
}

}  // namespace
}  // namespace tulle
