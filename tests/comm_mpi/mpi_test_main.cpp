// The main function of tests that all ranks of an MPI job run together.
//
// Rank 0 prints as GoogleTest does; the others print only what fails, with their rank in front. A failure on any rank
// is a failure of the job. TULLE_TEST_MPI_THREADS=funneled asks MPI for less than MPI_THREAD_MULTIPLE.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "tulle/comm/mpi.hpp"

namespace {

class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  // Kept for the message below: GoogleTest calls that one with its lock held, and asking it for the test would hang.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::ostringstream text;  // in one piece, because all ranks share the terminal
    text << "[rank " << rank_ << "] " << test_ << ": "
         << (result.file_name() == nullptr ? "unknown file" : result.file_name()) << ":" << result.line_number() << ": "
         << result.message() << "\n";
    std::cerr << text.str() << std::flush;
  }

 private:
  int rank_;
  std::string test_;
};

int thread_level() {
  const char* const wanted = std::getenv("TULLE_TEST_MPI_THREADS");
  return wanted != nullptr && std::string_view(wanted) == "funneled" ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const tulle::MpiSession session(thread_level());
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }

  const int failed_here = RUN_ALL_TESTS();
  int failed_anywhere = 0;
  MPI_Allreduce(&failed_here, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed_anywhere;
}
