#include "cli/common/numbers.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"

namespace tulle::cli {
namespace {

TEST(Numbers, CountsAreReadInEveryFormThatPeopleType) {
  EXPECT_EQ(parse_count("0"), 0u);
  EXPECT_EQ(parse_count("16777216"), 16777216u);
  EXPECT_EQ(parse_count("2^24"), 16777216u);
  EXPECT_EQ(parse_count("10^3"), 1000u);
  EXPECT_EQ(parse_count("16M"), 16777216u);
  EXPECT_EQ(parse_count("3K"), 3072u);
  EXPECT_EQ(parse_count("4G"), std::uint64_t{1} << 32);
  EXPECT_EQ(parse_count("1e6"), 1000000u);
  EXPECT_EQ(parse_count("1.5e6"), 1500000u);
  EXPECT_EQ(parse_count("18446744073709551615"), ~std::uint64_t{0});
}

TEST(Numbers, WhatIsNoCountIsRejectedByName) {
  for (const char* text : {"", "x", "-1", "1.5", "2^", "^2", "2^64", "2^65", "16X", "M", "18446744073709551616",
                           "20000000000G", "1e60", "1e-3", "nan", "inf", " 1", "1 "}) {
    try {
      parse_count(text);
      ADD_FAILURE() << "'" << text << "' was taken for a count";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_NE(std::string(error.what()).find("'" + std::string(text) + "'"), std::string::npos) << error.what();
    }
  }
}

TEST(Numbers, SharesLieBetweenZeroAndOne) {
  EXPECT_EQ(parse_share("0"), 0);
  EXPECT_EQ(parse_share("1"), 1);
  EXPECT_EQ(parse_share("0.01"), 0.01);
  EXPECT_EQ(parse_share("1e-3"), 1e-3);
  EXPECT_DOUBLE_EQ(parse_share("0.1%"), 0.001);
  for (const char* text : {"", "-0.1", "1.01", "101%", "%", "nan", "x"}) EXPECT_THROW(parse_share(text), Error) << text;
}

TEST(Numbers, RealsAreNotNegative) {
  EXPECT_EQ(parse_real("0.5"), 0.5);
  for (const char* text : {"", "-1", "inf", "nan", "5s"}) EXPECT_THROW(parse_real(text), Error) << text;
}

TEST(Numbers, TimesAndSizesHaveTheUnitThatFits) {
  EXPECT_EQ(format_seconds(40e-6), "40 us");
  EXPECT_EQ(format_seconds(1.934e-3), "1.93 ms");
  EXPECT_EQ(format_seconds(1.24), "1.24 s");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.3e6), "1.3 MB");
  EXPECT_EQ(format_bytes(999.9e3), "1 MB");
}

}  // namespace
}  // namespace tulle::cli
