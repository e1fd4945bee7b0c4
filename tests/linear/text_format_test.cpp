#include "tulle/linear/text_format.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>

namespace tulle::linear {
namespace {

Rows parsed(std::string_view line, TextOptions options = {}) {
  Rows rows;
  const auto fault = parse_line(line, options, rows);
  EXPECT_FALSE(fault) << line << ": " << (fault ? fault->reason : "");
  return rows;
}

struct BadLine {
  std::string_view line, reason;
  std::size_t column;
};

void expect_refused(const BadLine& bad, TextOptions options = {}) {
  Rows rows;
  rows.add(3, 2.0f);
  rows.end_row(1);
  const auto fault = parse_line(bad.line, options, rows);
  ASSERT_TRUE(fault) << bad.line;
  EXPECT_NE(fault->reason.find(bad.reason), std::string::npos) << bad.line << ": " << fault->reason;
  EXPECT_EQ(fault->column, bad.column) << bad.line;
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.nonzeros(), 1u);
}

TEST(LibsvmLine, GivesLabelIndicesAndValues) {
  const Rows rows = parsed("-1 3:1 11:0.25 14:-2e3 # a comment 9:9");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.label(0), -1);
  EXPECT_EQ(std::vector(rows.indices().begin(), rows.indices().end()), (std::vector<std::uint32_t>{2, 10, 13}));
  EXPECT_EQ(std::vector(rows.values().begin(), rows.values().end()), (std::vector<float>{1, 0.25f, -2000}));
}

TEST(LibsvmLine, WithOnesAloneStoresNoValues) { EXPECT_TRUE(parsed("+1 1:1 2:1.0 7:1").is_binary()); }

TEST(LibsvmLine, TakesCommasTabsQidAndCarriageReturn) {
  const Rows rows = parsed("2.5\tqid:7,1:2, 5:3\r");
  EXPECT_EQ(rows.label(0), 2.5f);
  EXPECT_EQ(rows.nonzeros(), 2u);
}

TEST(LibsvmLine, SortsIndices) {
  const Rows rows = parsed("1 9:9 2:2 5:5");
  EXPECT_EQ(std::vector(rows.indices().begin(), rows.indices().end()), (std::vector<std::uint32_t>{1, 4, 8}));
  EXPECT_EQ(std::vector(rows.values().begin(), rows.values().end()), (std::vector<float>{2, 5, 9}));
}

TEST(LibsvmLine, OfNothingIsNoRow) {
  for (const std::string_view line : {"", "   ", "# all comment", "\r"}) EXPECT_EQ(parsed(line).size(), 0u);
}

TEST(LibsvmLine, ThatIsWrongIsRefusedWithReasonAndColumn) {
  const BadLine lines[] = {
      {"x 1:1", "label", 1},
      {"1 a:1", "index", 3},
      {"1 2", "':'", 4},
      {"1 2:", "number", 5},
      {"1 2:x", "number", 5},
      {"1 2:1x", "number", 6},
      {"1 0:1", "begin with 1", 4},
      {"1 99999999999:1", "large", 14},
      {"1 2:nan", "number", 8},
      {"1 2:1e99", "number", 9},
      {"1 3:1 2:1 3:2", "index 3 is there twice", 14},
      {"nan 1:1", "label", 4},
  };
  for (const BadLine& bad : lines) expect_refused(bad);
}

// What follows in memory is another line's.
TEST(LibsvmLine, IsNotReadBeyondItsEnd) {
  const std::string_view text = "1 3:+5 4:1";
  expect_refused({text.substr(0, 4), "expected a finite number", 5});
}

TEST(LibsvmLine, MayCountFromZero) { EXPECT_EQ(parsed("1 0:5", {.first_index = 0}).indices()[0], 0u); }

TEST(CsvLine, LeavesOutZerosAndEmptyFields) {
  const Rows rows = parsed("1, 2.5,,0, -3", {.format = TextFormat::csv});
  EXPECT_EQ(std::vector(rows.indices().begin(), rows.indices().end()), (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(std::vector(rows.values().begin(), rows.values().end()), (std::vector<float>{2.5f, -3}));
}

TEST(CsvLine, ThatIsWrongIsRefused) {
  expect_refused({"1,2,x", "number", 5}, {.format = TextFormat::csv});
  expect_refused({"1,2 3", "','", 5}, {.format = TextFormat::csv});
}

// The fast path of numbers must round as strtod does.
RC_GTEST_PROP(Numbers, AreReadAsTheCLibraryReadsThem, (std::int64_t digits, std::uint8_t places)) {
  const std::string text = std::to_string(digits % 1'000'000'000'000);
  const std::size_t sign = text[0] == '-' ? 1 : 0, decimals = places % (text.size() - sign + 1);
  std::string number = text;
  if (decimals > 0) number.insert(text.size() - decimals, ".");
  Rows rows;
  RC_ASSERT(!parse_line("1 1:" + number, {}, rows));
  const auto expected = static_cast<float>(std::strtod(number.c_str(), nullptr));
  RC_ASSERT((*rows.begins().rbegin() == 0 ? 0.0f : rows[0].value(0)) == expected);
}

TEST(Lines, AreParsedToTheLastWhichMayLackItsEnd) {
  Rows rows;
  std::vector<std::size_t> bad_offsets;
  const auto parse = [](std::string_view line, Rows& into) { return parse_line(line, {}, into); };
  parse_lines("1 1:1\nbad\n\n-1 2:1\n1 3:1", parse, rows,
              [&](std::size_t offset, std::string_view line, const LineFault&) {
                EXPECT_EQ(line, "bad");
                bad_offsets.push_back(offset);
              });
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(bad_offsets, std::vector<std::size_t>{6});
}

}  // namespace
}  // namespace tulle::linear
