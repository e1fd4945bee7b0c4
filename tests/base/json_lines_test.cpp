#include "base/json_lines.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <thread>

#include "base/temporary_directory.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

class JsonLinesTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path("lines.jsonl");
};

TEST_F(JsonLinesTest, ObjectsOfSeveralRunsFollowEachOtherLineByLine) {
  JsonLines(path_).append(R"({"a":1})");
  JsonLines(path_).append(R"({"a":2})");
  EXPECT_EQ(lines(), (std::vector<std::string>{R"({"a":1})", R"({"a":2})"}));
}

TEST_F(JsonLinesTest, LinesOfSeveralWritersDoNotMix) {
  constexpr int kWriters = 4, kLines = 200;
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < kWriters; ++writer) {
      writers.emplace_back([&, writer] {
        JsonLines file(path_);
        for (int i = 0; i < kLines; ++i) file.append(std::string(1000, static_cast<char>('a' + writer)));
      });
    }
  }
  std::map<std::string, int> counts;
  for (const std::string& line : lines()) ++counts[line];
  ASSERT_EQ(counts.size(), static_cast<std::size_t>(kWriters));
  for (const auto& [line, count] : counts) EXPECT_EQ(count, kLines);
}

TEST_F(JsonLinesTest, AFileThatCannotBeOpenedIsNamed) {
  try {
    JsonLines file("/nonexistent/rows.jsonl");
    ADD_FAILURE() << "it was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_STREQ(error.what(), "cannot open '/nonexistent/rows.jsonl': No such file or directory");
  }
}

TEST_F(JsonLinesTest, AFullDiskIsTold) {
  JsonLines full("/dev/full");
  EXPECT_THROW(full.append("{}"), Error);
}

}  // namespace
}  // namespace tulle
