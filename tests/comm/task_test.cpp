#include "tulle/comm/task.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tulle {
namespace {

Task<int> ready(int value) { co_return value; }

Task<long> sum_of_ready_tasks(int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) {
    const int value = co_await ready(i);
    sum += value;
  }
  co_return sum;
}

Task<int> nested(int depth) {
  if (depth == 0) co_return 0;
  const int below = co_await nested(depth - 1);
  co_return below + 1;
}

Task<int> failing() {
  throw std::runtime_error("on purpose");
  co_return 0;
}

Task<int> catching() {
  try {
    co_return co_await failing();
  } catch (const std::runtime_error&) {
    co_return -1;
  }
}

template <class T>
T run(Task<T> task) {
  ReadyQueue queue;
  task.start(queue);
  queue.run();
  EXPECT_TRUE(task.done());
  return task.take();
}

TEST(Task, awaits_a_million_ready_tasks_without_growing_the_stack) {
  constexpr long kCount = 1'000'000;
  EXPECT_EQ(run(sum_of_ready_tasks(kCount)), kCount * (kCount - 1) / 2);
}

TEST(Task, awaits_a_hundred_thousand_tasks_inside_each_other) { EXPECT_EQ(run(nested(100'000)), 100'000); }

TEST(Task, hands_exceptions_to_whoever_awaits) {
  EXPECT_EQ(run(catching()), -1);
  EXPECT_THROW(run(failing()), std::runtime_error);
}

TEST(Task, takes_its_frames_from_the_pool) {
  run(sum_of_ready_tasks(1000));
  const PoolStats before = pool_stats();
  run(sum_of_ready_tasks(1000));
  EXPECT_EQ(pool_stats().system_allocations, before.system_allocations);
  EXPECT_GE(pool_stats().reuses, before.reuses + 1000);
}

}  // namespace
}  // namespace tulle
