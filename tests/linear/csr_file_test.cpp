#include "tulle/linear/csr_file.hpp"

#include <gtest/gtest.h>

#include "base/error_of.hpp"
#include "base/temporary_directory.hpp"
#include "linear/sample_rows.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

using testing::error_of;

class CsrFile : public ::testing::Test {
 protected:
  std::string write(const Rows& rows, std::uint64_t block_bytes = 2000, std::uint64_t features = 0) {
    const std::string path = scratch_.path("rows.tcsr");
    CsrWriter writer(path, block_bytes);
    writer.add(rows);
    writer.finish(features);
    return path;
  }
  testing::TemporaryDirectory scratch_;
};

TEST_F(CsrFile, GivesBackWhatWasWritten) {
  const Rows rows = testing::sample_rows({.rows = 500});
  Dataset data = open_dataset(open_file(write(rows)), {});
  EXPECT_GT(data.blocks(), 5u);
  EXPECT_EQ(data.features(), rows.features());
  testing::expect_same_rows(testing::all_rows(data), rows);
}

TEST_F(CsrFile, StoresNoValuesWhereAllAreOne) {
  Rows ones, others;
  for (std::uint32_t row = 0; row < 100; ++row) {
    ones.add(row, 1.0f);
    ones.end_row(1);
    others.add(row, 2.0f);
    others.end_row(1);
  }
  const auto bytes_of = [&](const Rows& rows) { return open_file(write(rows, 1 << 20))->size(); };
  EXPECT_EQ(bytes_of(others) - bytes_of(ones), 400u);
}

TEST_F(CsrFile, DealsOutRowsEvenlyToAnyNumberOfParts) {
  const Rows rows = testing::sample_rows({.rows = 500});
  const ReaderPtr reader = open_file(write(rows));
  for (const int parts : {1, 2, 3, 7, 17, 600}) {
    Rows all;
    for (int part = 0; part < parts; ++part) {
      Dataset data = open_csr_part(reader, {part, parts}, 0);
      EXPECT_NEAR(static_cast<double>(data.rows()), 500.0 / parts, 1);
      const Rows mine = testing::all_rows(data);
      for (std::size_t row = 0; row < mine.size(); ++row) all.append(mine[row], mine.label(row));
    }
    testing::expect_same_rows(all, rows);
  }
}

TEST_F(CsrFile, KeepsNoMoreInMemoryThanAllowed) {
  const ReaderPtr reader = open_file(write(testing::sample_rows({.rows = 500})));
  Dataset none = open_csr_part(reader, {}, 0), all = open_csr_part(reader, {}, 1 << 20);
  EXPECT_NE(none.block(0), none.block(0));
  EXPECT_EQ(all.block(0), all.block(0));
}

TEST_F(CsrFile, MayHaveMoreFeaturesThanItUsesButNotFewer) {
  const Rows rows = testing::sample_rows({});
  EXPECT_EQ(read_csr_info(*open_file(write(rows, 2000, 1000))).features, 1000u);
  EXPECT_THROW(write(rows, 2000, 3), Error);
}

TEST_F(CsrFile, IsNotThereBeforeItIsFinished) {
  {
    CsrWriter writer(scratch_.path("unfinished"));
    writer.add(testing::sample_rows({}));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("unfinished")));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("unfinished.part")));
}

void read_everything(const ReaderPtr& reader) {
  Dataset data = open_csr_part(reader, {}, 0);
  testing::all_rows(data);
}

TEST_F(CsrFile, IsRefusedWithAnyOneByteChanged) {
  const std::string good = testing::contents_of(write(testing::sample_rows({.rows = 40}), 400));
  read_everything(open_memory("good", good));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_THROW(read_everything(open_memory("bad", bad)), Error) << "byte " << i;
  }
}

TEST_F(CsrFile, IsRefusedAtAnyShorterLength) {
  const std::string good = testing::contents_of(write(testing::sample_rows({.rows = 40}), 400));
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(read_everything(open_memory("bad", good.substr(0, length))), Error) << "length " << length;
  }
}

}  // namespace
}  // namespace tulle::linear
