#include "base/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

class ThreadsVariable {
 public:
  explicit ThreadsVariable(const char* value) { setenv("TULLE_THREADS", value, 1); }
  ~ThreadsVariable() { unsetenv("TULLE_THREADS"); }
};

TEST(ParallelFor, CallsEveryPartOnceOnAnyNumberOfThreads) {
  for (const int threads : {0, 1, 2, 5}) {
    for (const std::size_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      parallel_for(threads, count, [&](std::size_t i) { ++calls[i]; });
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(calls[i], 1) << threads << " threads, part " << i;
    }
  }
}

TEST(ParallelFor, RethrowsWhatAPartThrows) {
  for (const int threads : {1, 2}) {
    EXPECT_THROW(parallel_for(threads, 10,
                              [](std::size_t i) {
                                if (i == 7) throw Error(ErrorKind::bad_input, "part 7");
                              }),
                 Error);
  }
}

TEST(DefaultThreads, AreWhatTheVariableSays) {
  const ThreadsVariable three("3");
  EXPECT_EQ(default_threads(), 3);
}

TEST(DefaultThreads, AreAtLeastOneWithoutTheVariable) { EXPECT_GE(default_threads(), 1); }

TEST(DefaultThreads, RefuseAVariableThatIsNoCount) {
  for (const char* const text : {"0", "-1", "two", "2x"}) {
    const ThreadsVariable wrong(text);
    EXPECT_THROW(default_threads(), Error) << text;
  }
}

}  // namespace
}  // namespace tulle
