// A rank of a job dies or stops while the others reduce: every other rank gets an error that says so, in time.
#include <chrono>
#include <thread>

#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"
#include "stream/synthetic.hpp"
#include "tulle/collectives/collectives.hpp"
#include "tulle/comm/tcp.hpp"

namespace tulle::testing {
namespace {

constexpr int kRanks = 4;
constexpr double kDeadlineSeconds = 2;

void reduce_once(Communicator& communicator) {
  AnyStream stream = synthetic_stream({.dimension = 1 << 20, .nnz = 100'000, .rank = communicator.rank()});
  allreduce(communicator, stream, {.algorithm = "ssar_split_allgather", .deadline_seconds = kDeadlineSeconds});
}

// What a rank that survives complains about: no error, or one that comes late or does not name rank 3.
std::string survive(Communicator& communicator) {
  const double begin = steady_seconds();
  const std::string error = error_of([&] { reduce_once(communicator); });
  if (!contains(error, "rank 3")) return error;
  return steady_seconds() - begin < kDeadlineSeconds + 3 ? "" : "late: " + error;
}

void run_job(int signal_of_rank_3) {
  const TemporaryDirectory directory;
  const auto ends = run_processes(kRanks, 8, [&](int rank) -> std::string {
    const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = rank, .size = kRanks});
    Communicator communicator = connect(*rendezvous);
    reduce_once(communicator);  // the job is well before it is not
    // Whoever has its sum may be done before the others are.
    if (rank == kRanks - 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (rank == kRanks - 1) raise(signal_of_rank_3);
    return survive(communicator);
  });
  EXPECT_EQ(ends, (std::vector<int>{0, 0, 0, -SIGKILL}));  // one that stopped is killed in the end
}

TEST(TcpSurvivors, OfAKilledRankAreTold) { run_job(SIGKILL); }
TEST(TcpSurvivors, OfAStoppedRankAreToldByTheDeadline) { run_job(SIGSTOP); }

}  // namespace
}  // namespace tulle::testing
