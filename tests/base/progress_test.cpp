#include "base/progress.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

namespace tulle {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  ProgressOptions options(bool is_shown = true) {
    return {.out = &out_,
            .is_shown = is_shown,
            .delay_seconds = 1,
            .interval_seconds = 0.5,
            .width = 80,
            .clock_seconds = [this] { return now_; }};
  }

  std::ostringstream out_;
  double now_ = 100;
};

TEST_F(ProgressTest, TheLineSaysHowFarItIsAndHowLongItWillTake) {
  EXPECT_EQ(progress_line("measuring", 6, 24, 2, "dense_ring", 80),
            "measuring [#####---------------]  25 %  6 of 24  6 s left  dense_ring");
  EXPECT_EQ(progress_line("measuring", 0, 24, 2, "inputs", 80),
            "measuring [--------------------]   0 %  0 of 24  inputs");
  EXPECT_EQ(progress_line("x", 1, 1000, 1, "", 80), "x [--------------------]   0 %  1 of 1000  17 min left  ");
}

TEST_F(ProgressTest, TheLineIsNeverWiderThanTheTerminal) {
  EXPECT_EQ(progress_line("measuring", 6, 24, 2, "dense_ring", 10), "measuring ");
}

TEST_F(ProgressTest, AShortJobShowsNothing) {
  Progress progress("measuring", 10, options());
  now_ += 0.9;
  progress.advance(9, "x");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, ALongJobShowsALineAndTakesItAway) {
  {
    Progress progress("measuring", 10, options());
    now_ += 1.5;
    progress.advance(5, "dense_ring");
    EXPECT_EQ(out_.str(), "\r\033[Kmeasuring [##########----------]  50 %  5 of 10  2 s left  dense_ring");
  }
  EXPECT_TRUE(out_.str().ends_with("dense_ring\r\033[K"));
}

TEST_F(ProgressTest, TheLineIsNotDrawnForEveryStep) {
  Progress progress("measuring", 100, options());
  now_ += 2;
  progress.advance(1, "x");
  const std::string once = out_.str();
  now_ += 0.1;
  progress.advance(1, "x");
  EXPECT_EQ(out_.str(), once);
  now_ += 0.5;
  progress.advance(1, "x");
  EXPECT_NE(out_.str().find("3 of 100"), std::string::npos);
}

TEST_F(ProgressTest, NothingIsDrawnWhereNobodyLooks) {
  Progress progress("measuring", 10, options(false));
  now_ += 5;
  progress.advance(5, "x");
  progress.clear();
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, AVariableDecidesUnderMpirun) {
  ::setenv("TULLE_PROGRESS", "1", 1);
  EXPECT_TRUE(progress_is_wanted());
  ::setenv("TULLE_PROGRESS", "0", 1);
  EXPECT_FALSE(progress_is_wanted());
  ::unsetenv("TULLE_PROGRESS");
}

}  // namespace
}  // namespace tulle
