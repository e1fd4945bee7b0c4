// survivors killed|stopped|dimension: the last rank of a job dies, stops or disagrees while the others reduce.
//
// Every rank that is left prints "survivor R: KIND: message" once it has its error. Ends without MPI_Finalize, which
// would wait for the dead; rank 0 first puts an end to a stopped rank, so that the launcher does not wait for it.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "stream/synthetic.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/mpi.hpp"

namespace {

constexpr double kDeadlineSeconds = 3;
constexpr std::uint64_t kDimension = 1 << 20;

void print_survivor(int rank, const tulle::Error& error) {
  char line[1000];
  const int length = std::snprintf(line, sizeof line, "survivor %d: %s: %s\n", rank,
                                   std::string(tulle::to_string(error.kind())).c_str(), error.what());
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line, static_cast<std::size_t>(length));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view fate = argc > 1 ? argv[1] : "";
  const tulle::MpiSession session;
  tulle::Communicator communicator = tulle::mpi_communicator(MPI_COMM_WORLD);
  const int rank = communicator.rank();
  const bool is_victim = rank == communicator.size() - 1;

  std::vector<int> processes(static_cast<std::size_t>(communicator.size()));
  const int process = getpid();
  MPI_Allgather(&process, 1, MPI_INT, processes.data(), 1, MPI_INT, MPI_COMM_WORLD);

  const auto reduce_once = [&](std::uint64_t dimension) {
    tulle::AnyStream stream = tulle::synthetic_stream({.dimension = dimension, .nnz = 100000, .rank = rank});
    tulle::allreduce(communicator, stream, {.algorithm = "ssar_split_allgather", .deadline_seconds = kDeadlineSeconds});
  };
  reduce_once(kDimension);  // the job is well before it is not
  if (is_victim && fate == "killed") raise(SIGKILL);
  if (is_victim && fate == "stopped") raise(SIGSTOP);
  try {
    reduce_once(is_victim && fate == "dimension" ? kDimension + 1 : kDimension);
  } catch (const tulle::Error& error) {
    print_survivor(rank, error);
  }
  sleep(1);  // for the others to be told before this process is gone
  if (rank == 0 && fate == "stopped") kill(processes.back(), SIGKILL);
  _exit(0);
}
