#include "tune/samples.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

TEST(Samples, of_several_ranks_come_together_by_name) {
  Samples mine, theirs;
  mine.of("a") = {1, 5};
  mine.of("b") = {};
  theirs.of("a") = {3};
  theirs.of("b") = {7, 9};
  mine.add(theirs.pack());
  const Summary summary = mine.summary();
  EXPECT_EQ(summary.at("a"), (Quartiles{2, 3, 4}));
  EXPECT_EQ(summary.at("b"), (Quartiles{7.5, 8, 8.5}));
  EXPECT_EQ(theirs.unpack(Samples::pack(summary)), summary);
}

}  // namespace
}  // namespace tulle
