// Heartbeats on TCP: a stopped process is found although its kernel answers for it.
#include "tulle/comm/heartbeat.hpp"

#include <fstream>
#include <thread>

#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"
#include "tulle/comm/control.hpp"
#include "tulle/comm/shrink.hpp"

namespace tulle::testing {
namespace {

// Far below the deadline of operations, which is 300 s, and far above what a busy machine keeps a process waiting.
constexpr Heartbeat kHeartbeat{.interval_seconds = 0.2, .limit_seconds = 4};
constexpr int kRanks = 3, kVictim = 1;

std::string first_error(Communicator& communicator) {
  try {
    while (true) barrier(communicator);
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
}

// Sums until rank 1 stops itself; the others shrink and wake it up.
std::string run_rank(Communicator& communicator, const std::string& directory) {
  const bool is_victim = communicator.rank() == kVictim;
  barrier(communicator);
  if (is_victim) {
    std::ofstream(directory + "/victim.new") << getpid() << std::flush;
    std::filesystem::rename(directory + "/victim.new", directory + "/victim");
    raise(SIGSTOP);
  }
  const double begin = steady_seconds();
  const std::string error = first_error(communicator);
  const double took = steady_seconds() - begin;
  if (!contains(error, "rank 1 is lost: it has been silent for")) return error;
  if (is_victim) {  // was told, and the others have gone on without it
    const std::string words = error_of([&] { shrink(communicator, {.deadline_seconds = 60}); });
    std::ofstream(directory + "/told") << words;
    return contains(words, "survivors") || contains(words, "without this rank") ? "" : words;
  }
  if (!contains(error, "peer_failed: ")) return error;
  if (took > 60) return "took " + std::to_string(took) + " s";
  Communicator survivors = shrink(communicator, {.deadline_seconds = 60});
  if (survivors.size() != kRanks - 1) return "a survivor is missing";
  barrier(survivors);
  pid_t victim = 0;
  std::ifstream(directory + "/victim") >> victim;
  if (communicator.rank() == 0) kill(victim, SIGCONT);
  const Deadline deadline(60);  // who has gone could not tell it anything
  while (!std::filesystem::exists(directory + "/told") && !deadline.has_passed()) usleep(10'000);
  return "";
}

TEST(TcpHeartbeat, FindsAStoppedProcessWhichIsToldWhenItGoesOn) {
  const TemporaryDirectory directory;
  EXPECT_EQ(run_processes(kRanks, 100,
                          [&](int rank) {
                            const auto rendezvous =
                                directory_rendezvous({.path = directory.path(), .rank = rank, .size = kRanks});
                            Communicator communicator = connect(*rendezvous, {.heartbeat = kHeartbeat});
                            return run_rank(communicator, directory.path());
                          }),
            (std::vector<int>(kRanks, 0)));
}

// A program that computes does not call the library; the progress thread beats for it.
TEST(TcpHeartbeat, DoesNotMissARankThatComputes) {
  const TemporaryDirectory directory;
  EXPECT_EQ(run_processes(2, 60,
                          [&](int rank) -> std::string {
                            const auto rendezvous =
                                directory_rendezvous({.path = directory.path(), .rank = rank, .size = 2});
                            const Heartbeat heartbeat{.interval_seconds = 0.2, .limit_seconds = 3};
                            Communicator communicator = connect(*rendezvous, {.heartbeat = heartbeat});
                            if (rank == 0) std::this_thread::sleep_for(std::chrono::seconds(5));
                            barrier(communicator);
                            return "";
                          }),
            (std::vector<int>(2, 0)));
}

TEST(TcpHeartbeat, IsReadFromTheEnvironmentBeforeAnybodyIsMet) {
  const TemporaryDirectory directory;
  const auto connect_with = [&](const char* text) {
    return run_processes(1, 60, [&](int) -> std::string {
      setenv(kHeartbeatVariable, text, 1);
      Communicator communicator = connect(*directory_rendezvous({.path = directory.path(), .rank = 0, .size = 1}));
      return communicator.engine()->progresses_alone() ? "" : "there are no heartbeats";
    });
  };
  EXPECT_EQ(connect_with("1/30"), std::vector<int>{0});
  EXPECT_EQ(connect_with("0"), std::vector<int>{1});
  EXPECT_EQ(connect_with("often"), std::vector<int>{1});
}

// The sender writes as much as a small buffer takes, again and again; the message is whole at the end.
TEST(TcpHeartbeat, HearsBytesOfAMessageThatIsNotWhole) {
  constexpr int kParts = 5;
  const TcpOptions options{
      .host_reads = HostReads::never, .send_buffer_bytes = 1 << 14, .receive_buffer_bytes = 1 << 14};
  run_tcp(2, options, [](TcpRank& self) {
    ASSERT_TRUE(self.meet_all());
    if (self.transport.rank() == 1) {
      self.transport.send(0, message_of_lengths({40'000'000}, 1));
      EXPECT_TRUE(self.meet_all());
      return;
    }
    for (int part = 0; part < kParts; ++part) {
      const std::uint64_t before = self.transport.bytes_heard(1);
      ASSERT_TRUE(self.progress_until([&] { return self.transport.bytes_heard(1) > before; }));
      EXPECT_TRUE(self.sink.messages.empty());
    }
    EXPECT_TRUE(self.await_messages(1));
    EXPECT_TRUE(self.meet_all());
  });
}

}  // namespace
}  // namespace tulle::testing
