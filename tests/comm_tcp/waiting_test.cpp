// Waiting costs next to nothing, ends when something comes, and can be ended by another thread.
#include <sys/resource.h>

#include <atomic>

#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

double cpu_seconds_of_this_thread() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(TcpWaiting, TakesUnderOnePercentOfACore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more";
#endif
  run_tcp(3, {}, [](TcpRank& self) {
    ASSERT_TRUE(self.meet_all());
    constexpr double kSeconds = 2;
    const double before = cpu_seconds_of_this_thread();
    self.progress_until([] { return false; }, kSeconds);
    EXPECT_LT(cpu_seconds_of_this_thread() - before, 0.01 * kSeconds);
    ASSERT_TRUE(self.meet_all());
  });
}

TEST(TcpWaiting, EndsWhenAMessageComes) {
  run_tcp(2, {}, [](TcpRank& self) {
    ASSERT_TRUE(self.meet_all());
    if (self.transport.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      self.transport.send(1, message_of_lengths({8}, 1));
    } else {
      constexpr int kVeryPatient = 1000;
      const double begin = steady_seconds();
      while (!self.transport.poll()) self.transport.idle(kVeryPatient);
      EXPECT_GT(steady_seconds() - begin, 0.1);
    }
    ASSERT_TRUE(self.meet_all());
  });
}

// A wake that comes first must not be lost: each ends one sleep, of 10 s here.
TEST(TcpWaiting, IsEndedByAWakeFromAnotherThreadWheneverItComes) {
  Poller poller;
  std::atomic<int> rounds = 0;
  std::jthread waker([&] {
    for (int round = 0; round < 2000; ++round) {
      poller.wake();
      while (rounds.load() <= round) std::this_thread::yield();
    }
  });
  const double begin = steady_seconds();
  for (int round = 0; round < 2000; ++round) {
    poller.sleep(10'000);
    rounds += 1;
  }
  EXPECT_LT(steady_seconds() - begin, 9);
}

}  // namespace
}  // namespace tulle::testing
