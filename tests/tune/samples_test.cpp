#include "tune/samples.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

TEST(Samples, of_several_ranks_come_together_by_name) {
  Samples mine, theirs;
  mine.of("a") = {1, 5};
  mine.of("b") = {};
  theirs.of("a") = {3};
  theirs.of("b") = {7, 9};
  mine.add(theirs.pack(), 1);
  const Summary summary = mine.summary();
  EXPECT_EQ(summary.at("a"), (Quartiles{2, 3, 4}));
  EXPECT_EQ(summary.at("b"), (Quartiles{7.5, 8, 8.5}));
  EXPECT_EQ(theirs.unpack(Samples::pack(summary), 0), summary);
}

Buffer packed(const std::vector<double>& numbers) { return Buffer::copy_of(std::as_bytes(std::span(numbers))); }

TEST(Samples, that_make_no_sense_are_told_with_the_rank_that_sent_them) {
  const auto error_of = [](const Buffer& bytes) -> std::string {
    Samples mine;
    mine.of("a") = {1};
    mine.of("b") = {2};
    try {
      mine.add(bytes, 3);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_message);
      EXPECT_EQ(error.peer(), 3);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(packed({1, 5, 0})), "no error");
  const double infinite = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& numbers : std::vector<std::vector<double>>{
           {}, {1}, {2, 5, 0}, {-1, 0}, {0.5, 5, 0}, {1e300, 5, 0}, {1, 5, 0, 7}, {1, infinite, 0}, {1, 5}}) {
    EXPECT_NE(error_of(packed(numbers)).find("rank 3"), std::string::npos) << numbers.size() << " numbers";
  }
  EXPECT_NE(error_of(Buffer::allocate(13)).find("no numbers"), std::string::npos);
}

TEST(Samples, whose_summary_is_of_other_measurements_is_told) {
  Samples mine;
  mine.of("a") = {1};
  EXPECT_THROW((void)mine.unpack(packed({}), 0), Error);
  EXPECT_THROW((void)mine.unpack(packed({1, 2}), 0), Error);
  EXPECT_THROW((void)mine.unpack(packed({1, 2, 3, 4, 5, 6}), 0), Error);
  EXPECT_THROW((void)mine.unpack(packed({1, 2, std::numeric_limits<double>::quiet_NaN()}), 0), Error);
  EXPECT_EQ(mine.unpack(packed({1, 2, 3}), 0).at("a"), (Quartiles{1, 2, 3}));
}

}  // namespace
}  // namespace tulle
