#include "tulle/tune/line_fit.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tulle/base/philox.hpp"

namespace tulle {
namespace {

std::vector<TransferTime> line(double alpha, double beta) {
  std::vector<TransferTime> times;
  for (double bytes = 64; bytes <= 4 << 20; bytes *= 4) times.push_back({bytes, alpha + beta * bytes});
  return times;
}

TEST(LineFit, finds_a_line_that_is_one) {
  const LineFit fit = fit_line(line(5e-6, 2e-10));
  EXPECT_NEAR(fit.alpha_seconds, 5e-6, 5e-12);
  EXPECT_NEAR(fit.beta_seconds_per_byte, 2e-10, 2e-16);
}

RC_GTEST_PROP(LineFit, is_not_turned_by_times_that_are_much_too_long, ()) {
  const int exponent = *rc::gen::inRange(-7, -3);
  const double alpha = std::pow(10, exponent), beta = alpha * 1e-5;
  std::vector<TransferTime> times = line(alpha, beta);
  // Three of nine, anywhere.
  for (int i = 0; i < 3; ++i) {
    times[*rc::gen::inRange<std::size_t>(0, times.size())].seconds *= *rc::gen::inRange(2, 1000);
  }
  const LineFit fit = fit_line(times);
  // The line stays one that six points are on, unless the two ends of the ladder are all that tells α from β.
  int on_line = 0;
  for (const TransferTime& time : line(alpha, beta)) {
    const double told = fit.alpha_seconds + fit.beta_seconds_per_byte * time.bytes;
    on_line += std::abs(told - time.seconds) < 0.01 * time.seconds;
  }
  RC_ASSERT(on_line >= 5);
}

TEST(LineFit, stays_near_the_line_when_every_time_is_noisy) {
  Philox random(3);
  std::vector<TransferTime> times;
  for (int round = 0; round < 4; ++round) {
    for (TransferTime time : line(3e-5, 8.5e-9)) {
      time.seconds *= 0.9 + 0.2 * random.uniform();
      times.push_back(time);
    }
  }
  const LineFit fit = fit_line(times);
  EXPECT_NEAR(fit.alpha_seconds, 3e-5, 0.1 * 3e-5);
  EXPECT_NEAR(fit.beta_seconds_per_byte, 8.5e-9, 0.1 * 8.5e-9);
}

TEST(LineFit, gives_no_negative_constants) {
  const TransferTime falling[] = {{64, 2e-6}, {1 << 20, 1e-6}};
  const TransferTime steep[] = {{1000, 1e-6}, {2000, 4e-6}};
  EXPECT_EQ(fit_line(falling).beta_seconds_per_byte, 0);
  EXPECT_EQ(fit_line(steep).alpha_seconds, 0);
}

TEST(LineFit, takes_one_time_for_all_latency) {
  const TransferTime one[] = {{64, 2e-6}};
  EXPECT_EQ(fit_line(one).alpha_seconds, 2e-6);
}

}  // namespace
}  // namespace tulle
