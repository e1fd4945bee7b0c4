// Text files as data sets: parts, compression, bad lines.
#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error_of.hpp"
#include "linear/sample_rows.hpp"
#include "tulle/base/error.hpp"
#include "tulle/linear/dataset.hpp"

namespace tulle::linear {
namespace {

using testing::all_rows;
using testing::error_of;

std::string as_text(const Rows& rows) {
  std::string text;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    text += fmt::format("{}", rows.label(row));
    for (std::size_t i = 0; i < rows[row].indices.size(); ++i) {
      text += fmt::format(" {}:{}", rows[row].indices[i] + 1, rows[row].value(i));
    }
    text += '\n';
  }
  return text;
}

std::string packed(const std::string& text, int filter) {
  std::string bytes(text.size() + 65536, '\0');
  std::size_t used = 0;
  archive* const handle = archive_write_new();
  archive_write_add_filter(handle, filter);
  archive_write_set_format_raw(handle);
  archive_write_open_memory(handle, bytes.data(), bytes.size(), &used);
  archive_entry* const entry = archive_entry_new();
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_write_header(handle, entry);
  archive_write_data(handle, text.data(), text.size());
  archive_entry_free(entry);
  archive_write_free(handle);
  bytes.resize(used);
  return bytes;
}

Rows joined_parts(const ReaderPtr& reader, int parts) {
  Rows all;
  for (int part = 0; part < parts; ++part) {
    Dataset data = open_dataset(reader, {.part = {part, parts}});
    const Rows rows = all_rows(data);
    for (std::size_t row = 0; row < rows.size(); ++row) all.append(rows[row], rows.label(row));
  }
  return all;
}

TEST(TextData, PartsOfAPlainFileJoinToTheWhole) {
  const Rows rows = testing::sample_rows({.rows = 300});
  std::string text = as_text(rows);
  for (const bool has_last_end : {true, false}) {
    if (!has_last_end) text.pop_back();
    for (const int parts : {1, 2, 3, 7, 400}) {
      SCOPED_TRACE(parts);
      testing::expect_same_rows(joined_parts(open_memory("rows", text), parts), rows);
    }
  }
}

TEST(TextData, ALineAtTheBorderBelongsToThePartInWhichItBegins) {
  const ReaderPtr reader = open_memory("rows", "1 1:1\n1 2:1\n");  // parts of six bytes, as the lines are
  EXPECT_EQ(open_dataset(reader, {.part = {0, 2}}).rows(), 1u);
  EXPECT_EQ(open_dataset(reader, {.part = {1, 2}}).rows(), 1u);
}

TEST(TextData, IsUnpackedByWhatItBeginsWith) {
  const Rows rows = testing::sample_rows({.rows = 300});
  const std::string text = as_text(rows);
  for (const int filter : {ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD, ARCHIVE_FILTER_BZIP2}) {
    testing::expect_same_rows(joined_parts(open_memory("rows", packed(text, filter)), 3), rows);
  }
}

TEST(TextData, LargerThanAChunkIsDealtOutWholeInCompressedForm) {
  const Rows rows = testing::sample_rows({.rows = 20000});
  const std::string text = as_text(rows);
  ASSERT_GT(text.size(), 2u << 20);
  const ReaderPtr reader = open_memory("rows", packed(text, ARCHIVE_FILTER_GZIP));
  EXPECT_EQ(joined_parts(reader, 2).size(), rows.size());
  EXPECT_GT(open_dataset(reader, {.part = {1, 2}}).rows(), 0u);
  testing::expect_same_rows(joined_parts(open_memory("rows", text), 3), rows);
}

TEST(TextData, OfADamagedArchiveIsRefused) {
  std::string bytes = packed(as_text(testing::sample_rows({.rows = 3000})), ARCHIVE_FILTER_XZ);
  bytes.resize(bytes.size() / 2);
  const std::string error = error_of([&] { open_dataset(open_memory("half.xz", bytes), {}); });
  EXPECT_NE(error.find("half.xz: cannot be unpacked"), std::string::npos) << error;
}

TEST(TextData, ABadLineIsToldWithFileLineAndReason) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += i == 700 ? "1 2:x\n" : "1 2:1\n";
  for (const int parts : {1, 3}) {
    std::string error;
    for (int part = 0; part < parts; ++part) {
      const std::string each = error_of([&] { open_dataset(open_memory("rows.txt", text), {.part = {part, parts}}); });
      if (each != "no error") error = each;
    }
    EXPECT_EQ(error, "rows.txt:701:5: expected a finite number: '1 2:x'");
  }
  const std::string error =
      error_of([&] { open_dataset(open_memory("rows.gz", packed(text, ARCHIVE_FILTER_GZIP)), {}); });
  EXPECT_EQ(error, "rows.gz:701:5: expected a finite number: '1 2:x'");
}

TEST(TextData, BadLinesAreCountedWhereTheyAreSkipped) {
  const Dataset data = open_dataset(open_memory("rows", "1 1:1\nno\n-1 2:1\n1 0:1\n"), {.text = {.skip_bad = true}});
  EXPECT_EQ(data.rows(), 2u);
  EXPECT_EQ(data.bad_lines(), 2u);
}

TEST(TextData, ThatDoesNotFitTheMemoryIsRefused) {
  const std::string text = as_text(testing::sample_rows({.rows = 300}));
  const std::string error = error_of([&] { open_dataset(open_memory("rows", text), {.memory_bytes = 100}); });
  EXPECT_NE(error.find("tulle convert"), std::string::npos) << error;
}

TEST(TextData, AMissingFileIsTold) {
  EXPECT_NE(error_of([] { open_file("no/such/file"); }).find("no/such/file: No such file"), std::string::npos);
}

TEST(Split, GivesEveryRowToOneSide) {
  const Rows rows = testing::sample_rows({.rows = 1000});
  const auto [held_out, rest] = Dataset(rows).split(0.2, 1);
  EXPECT_EQ(held_out.rows() + rest.rows(), 1000u);
  EXPECT_NEAR(static_cast<double>(held_out.rows()), 200, 50);
  Dataset copy = held_out;
  EXPECT_EQ(all_rows(copy).size(), held_out.rows());
}

TEST(Dataset, IsDividedIntoPartsThatHaveEveryRowOnce) {
  const Rows rows = testing::sample_rows({.rows = 100});
  std::multiset<std::size_t> lengths, expected;
  std::size_t total = 0;
  for (int rank = 0; rank < 3; ++rank) {
    Dataset part = Dataset(rows).divided({rank, 3});
    EXPECT_NEAR(static_cast<double>(part.rows()), 33, 1);
    total += part.rows();
    const Rows own = testing::all_rows(part);
    for (std::size_t row = 0; row < own.size(); ++row) lengths.insert(own[row].indices.size());
  }
  for (std::size_t row = 0; row < rows.size(); ++row) expected.insert(rows[row].indices.size());
  EXPECT_EQ(total, rows.size());
  EXPECT_EQ(lengths, expected);
}

}  // namespace
}  // namespace tulle::linear
