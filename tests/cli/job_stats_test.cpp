#include "cli/report/job_stats.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tulle::cli {
namespace {

TEST(JobStats, AStepThatNoIntegerHoldsIsNone) {
  for (const char* const number : {"-1", "1e30", "18446744073709551616", "12222222222222222222222222222"}) {
    const auto stats = parse_step_stats(std::string(R"({"kind":"stats","seconds":0.5,"step":)") + number + "}");
    ASSERT_TRUE(stats) << number;
    EXPECT_FALSE(stats->step) << number;
    EXPECT_EQ(stats->seconds, 0.5);
  }
  EXPECT_EQ(parse_step_stats(R"({"step":7})")->step, 7u);
}

}  // namespace
}  // namespace tulle::cli
