// Progress from a thread of the library's, where MPI allows it. Run with and without MPI_THREAD_MULTIPLE.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "comm_mpi/mpi_fixture.hpp"

namespace tulle {
namespace {

bool mpi_has_threads() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

TEST(MpiProgressThread, FinishesOperationsWhileTheCallerDoesSomethingElse) {
  if (!mpi_has_threads()) GTEST_SKIP() << "MPI does not have MPI_THREAD_MULTIPLE";
  Communicator communicator = test_communicator();
  communicator.start_progress_thread();
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> received = false;
    const std::vector<std::size_t> lengths = {100, 1'000'000};
    const auto body = [&](Operation& operation) -> Task<> {
      co_await shift_right(operation, lengths);
      received = true;
    };
    const auto operation = communicator.start({}, [&](Operation& started) { return body(started); });
    for (int i = 0; i < 10'000 && !received; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(received);
    communicator.engine()->wait(*operation);
  }
}

TEST(MpiProgressThread, LeavesRoomForTheCallersOwnMessages) {
  if (!mpi_has_threads()) GTEST_SKIP() << "MPI does not have MPI_THREAD_MULTIPLE";
  Communicator communicator = test_communicator();
  communicator.start_progress_thread();
  for (int round = 0; round < 20; ++round) {
    const auto operation = communicator.start({}, everyone_to_everyone);
    int sum = 0, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_EQ(sum, communicator.size());
    communicator.engine()->wait(*operation);
  }
}

TEST(MpiProgressThread, IsRefusedWithAHintWhereMpiDoesNotAllowIt) {
  if (mpi_has_threads()) GTEST_SKIP() << "MPI has MPI_THREAD_MULTIPLE";
  Communicator communicator = test_communicator();
  try {
    communicator.start_progress_thread();
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("MPI_THREAD_MULTIPLE"), std::string::npos);
  }
  run_operation(communicator, everyone_to_everyone);  // goes on without
}

}  // namespace
}  // namespace tulle
