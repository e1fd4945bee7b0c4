// A process that forks while it is connected: the child has none of the connections.
#include <fcntl.h>

#include "comm_tcp/processes.hpp"
#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

int open_sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:") || contains(target, "eventpoll") || contains(target, "eventfd")) ++count;
  }
  return count;
}

// The exit code of a child that runs `body`.
int in_forked_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Forking holds the locks of all transports, one after the other, under one more lock that the thread sanitizer does
// not take into account: it fears a deadlock.
class TcpFork : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer does not follow";
#endif
  }
};

TEST_F(TcpFork, TheChildHasNoSocketAndItsCallsThrowWhileTheParentGoesOn) {
  run_tcp(2, {}, [](TcpRank& self) {
    ASSERT_TRUE(self.meet_all());
    const int before = open_sockets();
    if (self.transport.rank() == 0) {
      EXPECT_GT(before, 3);
      EXPECT_EQ(in_forked_child([&] {
                  const auto throws = [](const std::function<void()>& call) {
                    return contains(error_of(call), "this process was forked from a rank");
                  };
                  return open_sockets() == 0 && throws([&] { self.transport.poll(); }) &&
                         throws([&] { self.transport.send(1, message_of({})); }) &&
                         throws([&] { self.transport.idle(0); });
                }),
                0);
    }
    ASSERT_TRUE(self.meet_all());
    EXPECT_TRUE(self.sink.failures.empty());
  });
}

TEST_F(TcpFork, ManyForksWhileTheOtherThreadCommunicatesDoNoHarm) {
  run_tcp(2, {.lazy_above = 1}, [](TcpRank& self) {
    for (int round = 0; round < 100; ++round) {
      if (self.transport.rank() == 0) {
        EXPECT_EQ(in_forked_child([] { return open_sockets() == 0; }), 0);
      }
      self.transport.send(1 - self.transport.rank(), message_of_lengths({10, 100'000}, 1));
      ASSERT_TRUE(self.await_messages(static_cast<std::size_t>(round) + 1));
    }
    ASSERT_TRUE(self.meet_all());
  });
}

TEST_F(TcpFork, AChildThatLivesOnDoesNotHideThatItsParentIsDead) {
  const TemporaryDirectory directory;
  const auto ends = run_processes(2, 30, [&](int rank) -> std::string {
    const auto rendezvous = directory_rendezvous({.path = directory.path(), .rank = rank, .size = 2});
    TcpRank self(*rendezvous);
    if (!self.meet_all()) return "did not meet";
    if (rank == 1) {
      if (fork() == 0) {
        sleep(8);
        _exit(0);
      }
      raise(SIGKILL);
    }
    return self.await_failure(5) && self.sink.failures[0].first == 1 ? "" : "nobody said that rank 1 is gone";
  });
  EXPECT_EQ(ends, (std::vector<int>{0, -SIGKILL}));
}

TEST_F(TcpFork, ExecClosesEverything) {
  run_tcp(2, {}, [](TcpRank& self) {
    ASSERT_TRUE(self.meet_all());
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename().string());
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      if (target.starts_with("socket:")) {
        EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << target;
      }
    }
    ASSERT_TRUE(self.meet_all());
  });
}

}  // namespace
}  // namespace tulle::testing
