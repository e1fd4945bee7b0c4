#include "base/printable.hpp"

#include <gtest/gtest.h>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

using namespace std::string_literals;

TEST(Printable, LeavesTextOfAllLanguagesAndLinesAlone) {
  for (const std::string text :
       {"", "label 1:2.5\nnext line", "Grüße, κόσμε, 世界, 🧵", "C:\\x41", "\xc2\xa0"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, EscapesWhatATerminalActsOn) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(printable("a\0b\rc\td\x7f"s), "a\\x00b\\x0dc\\x09d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI as one character of C1
  EXPECT_EQ(printable("\u202egnp.exe"), "\\xe2\\x80\\xaegnp.exe");
}

TEST(Printable, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                    // cut off
  EXPECT_EQ(printable("\xc3("), "\\xc3(");                  // no continuation
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // ESC in two bytes
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");  // and in three
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
}

TEST(Printable, ChangesNothingTheSecondTime) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const std::string once = printable(bytes);
  EXPECT_EQ(printable(once), once);
}

TEST(Printable, IsWhatEveryErrorSays) {
  const Error error = Error(ErrorKind::bad_input, "line 1: '\x1b]0;owned\x07' is no number").at_rank(2);
  EXPECT_STREQ(error.what(), "rank 2: line 1: '\\x1b]0;owned\\x07' is no number");
}

}  // namespace
}  // namespace tulle
