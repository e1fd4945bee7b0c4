#include "tulle/base/quartiles.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

TEST(Quartiles, LieBetweenTheSamples) {
  const Quartiles five = quartiles({5, 1, 4, 2, 3});
  EXPECT_EQ(five.q1, 2);
  EXPECT_EQ(five.median, 3);
  EXPECT_EQ(five.q3, 4);
  EXPECT_EQ(quartiles({1, 2}).median, 1.5);
  EXPECT_EQ(quartiles({7}).q3, 7);
}

}  // namespace
}  // namespace tulle
