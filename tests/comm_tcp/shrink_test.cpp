// Processes that are killed or stopped, and survivors that go on by themselves.
#include "tulle/comm/shrink.hpp"

#include <fstream>

#include "comm_tcp/processes.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/tcp.hpp"

namespace tulle::testing {
namespace {

constexpr int kSumsAfterwards = 20;
const AgreeOptions kOptions{.deadline_seconds = 20, .patience_seconds = 1};

/// How the victim leaves: by that signal, after so many sums.
struct End {
  int rank;
  int signal;
  int after_sums;
};

double sum_of_ranks(Communicator& communicator, int rank) {
  return combine(communicator, std::vector<double>{static_cast<double>(1 << rank)})[0];
}

// Sums until it has been well for a while after the last death; gives a complaint, or nothing.
std::string survive(Communicator communicator, const std::vector<End>& ends, const std::string& directory) {
  const int rank = communicator.rank();
  double expected = (1 << communicator.size()) - 1;
  for (const End& end : ends) expected -= 1 << end.rank;
  int well = 0;
  for (int sums = 0; well < kSumsAfterwards; ++sums) {
    for (const End& end : ends) {
      if (end.rank != rank || end.after_sums != sums) continue;
      std::ofstream(directory + "/victim." + std::to_string(rank)) << getpid() << std::flush;
      raise(end.signal);
    }
    try {
      const double sum = sum_of_ranks(communicator, rank);
      if (sum == expected)
        well += 1;
      else if (sum < expected)
        return "a survivor is missing in a sum of " + std::to_string(sum);
    } catch (const Error&) {
      communicator = shrink(communicator, kOptions);
    }
  }
  return communicator.context()->epoch == 0 ? "nobody was left behind" : "";
}

// A stopped process cannot end by itself.
void end_stopped(const std::string& directory, const End& end) {
  pid_t process = 0;
  std::ifstream(directory + "/victim." + std::to_string(end.rank)) >> process;
  if (process > 0) kill(process, SIGKILL);
}

void run_job(int ranks, const std::vector<End>& ends, const TcpOptions& options = {}) {
  const TemporaryDirectory directory;
  int last = ranks - 1;  // the survivor that cleans up
  while (std::ranges::any_of(ends, [&](const End& end) { return end.rank == last; })) --last;
  std::vector<int> expected(static_cast<std::size_t>(ranks), 0);
  for (const End& end : ends) expected[static_cast<std::size_t>(end.rank)] = -SIGKILL;
  EXPECT_EQ(run_processes(ranks, 60,
                          [&](int rank) {
                            const auto rendezvous =
                                directory_rendezvous({.path = directory.path(), .rank = rank, .size = ranks});
                            Communicator communicator = connect(*rendezvous, options);
                            communicator.set_default_deadline(2);
                            const std::string complaint = survive(communicator, ends, directory.path());
                            for (const End& end : ends) {
                              if (rank == last && end.signal == SIGSTOP) end_stopped(directory.path(), end);
                            }
                            return complaint;
                          }),
            expected);
}

TEST(TcpShrink, GoOnWhenAProcessIsKilled) {
  for (const int ranks : {3, 4}) {
    for (int victim = 0; victim < ranks; ++victim) run_job(ranks, {{victim, SIGKILL, 3 + victim}});
  }
}

TEST(TcpShrink, GoOnWhenTwoOfFiveAreKilledOneAfterTheOtherOrAtOnce) {
  run_job(5, {{0, SIGKILL, 3}, {3, SIGKILL, 9}});
  run_job(5, {{1, SIGKILL, 4}, {2, SIGKILL, 4}});
}

TEST(TcpShrink, GoOnWhereConnectionsAreMadeOnDemand) { run_job(4, {{2, SIGKILL, 5}}, {.lazy_above = 1}); }

// Its kernel answers for it, so that silence is all that tells.
TEST(TcpShrink, GoOnWhenAProcessIsStopped) { run_job(3, {{0, SIGSTOP, 3}}); }

TEST(TcpShrink, OneOfTwoGoesOnWithAnyAndThrowsWithAMajority) {
  for (const Quorum quorum : {Quorum::majority, Quorum::any}) {
    const TemporaryDirectory directory;
    EXPECT_EQ(run_processes(2, 60,
                            [&](int rank) -> std::string {
                              const auto rendezvous =
                                  directory_rendezvous({.path = directory.path(), .rank = rank, .size = 2});
                              Communicator communicator = connect(*rendezvous);
                              barrier(communicator);
                              if (rank == 0) raise(SIGKILL);
                              try {
                                barrier(communicator);
                                return "the barrier went on";
                              } catch (const Error&) {
                              }
                              try {
                                Communicator alone = shrink(communicator, {.deadline_seconds = 20, .quorum = quorum});
                                if (quorum == Quorum::majority) return "one of two is no majority";
                                return sum_of_ranks(alone, 0) == 1 ? "" : "a wrong sum";
                              } catch (const Error& error) {
                                if (quorum == Quorum::any) return error.what();
                                return error.kind() == ErrorKind::excluded ? "" : error.what();
                              }
                            }),
              (std::vector<int>{-SIGKILL, 0}));
  }
}

}  // namespace
}  // namespace tulle::testing
