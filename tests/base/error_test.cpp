#include "tulle/base/error.hpp"

#include <gtest/gtest.h>

namespace tulle {
namespace {

TEST(Error, NamesItsRankOnce) {
  const Error error = Error(ErrorKind::deadline, "late").at_rank(3).at_rank(5);
  EXPECT_STREQ(error.what(), "rank 3: late");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_EQ(error.kind(), ErrorKind::deadline);
}

TEST(Error, KeepsItsPeerWhenARankIsNamed) {
  const Error error = Error(ErrorKind::mismatch, "sizes differ").with_peer(2).at_rank(1);
  EXPECT_EQ(error.peer(), 2);
  EXPECT_EQ(error.rank(), 1);
}

TEST(Error, HasNeitherRankNorPeerAtFirst) {
  const Error error(ErrorKind::system, "x");
  EXPECT_FALSE(error.rank().has_value());
  EXPECT_FALSE(error.peer().has_value());
  EXPECT_EQ(to_string(error.kind()), "system");
}

}  // namespace
}  // namespace tulle
