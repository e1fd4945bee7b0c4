// survivors killed|stopped|dimension FILE: the last rank of a job dies, stops or disagrees while the others reduce.
//
// Every rank that is left appends "survivor R: KIND: message" to FILE once it has its error; standard output may be
// gone by then with the launcher. Ends without MPI_Finalize, which would wait for the dead; rank 0 first puts an end to
// a stopped rank, so that the launcher does not wait for it.
#include <fcntl.h>
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

void report_survivor(const char* path, int rank, const tulle::Error& error) {
  char line[1000];
  const int length = std::snprintf(line, sizeof line, "survivor %d: %s: %s\n", rank,
                                   std::string(tulle::to_string(error.kind())).c_str(), error.what());
  const int file = open(path, O_WRONLY | O_APPEND);
  if (file < 0 || write(file, line, static_cast<std::size_t>(length)) != length) std::perror(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string_view fate = argv[1];
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
    report_survivor(argv[2], rank, error);
  }
  sleep(1);  // for the others to be told before this process is gone
  if (rank == 0 && fate == "stopped") kill(processes.back(), SIGKILL);
  _exit(0);
}
