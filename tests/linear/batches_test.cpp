// The order in which SGD sees rows: all of the file is mixed, in bounded memory.
#include "linear/batches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace tulle::linear {
namespace {

constexpr std::uint32_t kRowsOfBlock = 20;

// The rows of a file that is sorted: of each row the label is its number.
std::shared_ptr<const Rows> sorted_block(std::size_t block) {
  Rows rows;
  for (std::uint32_t row = 0; row < kRowsOfBlock; ++row) {
    rows.add(0, 2);
    rows.end_row(static_cast<float>(block * kRowsOfBlock + row));
  }
  return std::make_shared<const Rows>(std::move(rows));
}

Dataset in_memory(std::size_t blocks) {
  std::vector<std::shared_ptr<const Rows>> all;
  for (std::size_t block = 0; block < blocks; ++block) all.push_back(sorted_block(block));
  return {1, std::move(all)};
}

Dataset read_in_passes(std::size_t blocks, std::uint64_t memory_bytes) {
  return {1, std::vector<std::uint32_t>(blocks, kRowsOfBlock), sorted_block, memory_bytes};
}

std::vector<float> epoch_of(BatchCursor& cursor, std::uint64_t epoch, std::uint64_t skipped = 0) {
  std::vector<float> labels;
  cursor.begin_epoch(epoch, skipped);
  for (Batch batch; cursor.next(7, batch), batch.size() > 0;) {
    labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
    for (const RowView row : batch.rows) EXPECT_EQ(row.value(0), 2);
  }
  return labels;
}

std::size_t blocks_among(std::span<const float> labels) {
  std::set<int> blocks;
  for (const float label : labels) blocks.insert(static_cast<int>(label) / static_cast<int>(kRowsOfBlock));
  return blocks.size();
}

TEST(BatchCursor, VisitsEveryRowOnceInEveryEpochAndAnotherOrder) {
  for (Dataset data : {in_memory(50), read_in_passes(50, 0), read_in_passes(50, 1 << 20)}) {
    for (const bool shuffle : {false, true}) {
      BatchCursor cursor(data, 3, shuffle);
      const std::vector<float> first = epoch_of(cursor, 0), second = epoch_of(cursor, 1);
      EXPECT_EQ(std::set<float>(first.begin(), first.end()).size(), 50 * kRowsOfBlock);
      EXPECT_EQ(first.size(), 50 * kRowsOfBlock);
      EXPECT_EQ(first == second, !shuffle);
      EXPECT_EQ(std::ranges::is_sorted(first), !shuffle);
    }
  }
}

TEST(BatchCursor, MixesTheWholeFileWhereItIsInMemory) {
  Dataset data = in_memory(50);
  BatchCursor cursor(data, 3, true);
  const std::vector<float> labels = epoch_of(cursor, 0);
  EXPECT_GT(blocks_among(std::span(labels).first(200)), 45u);  // of 50; one block after the other has 10
  const double mean = std::accumulate(labels.begin(), labels.begin() + 200, 0.0) / 200;
  EXPECT_NEAR(mean, 499.5, 5 * 289 / std::sqrt(200.0));
}

TEST(BatchCursor, MixesAsManyBlocksAsItMayKeepOfAFileThatIsReadInPasses) {
  const std::uint64_t bytes = sorted_block(0)->bytes();
  for (const auto& [kept, expected] : {std::pair(0, 16), std::pair(20, 20), std::pair(1000, 64)}) {
    std::vector<std::weak_ptr<const Rows>> given;
    std::size_t most = 0;
    const auto load = [&](std::size_t block) {
      const auto rows = sorted_block(block);
      given.push_back(rows);
      most =
          std::max<std::size_t>(most, std::ranges::count_if(given, [](const auto& each) { return !each.expired(); }));
      return rows;
    };
    Dataset data(1, std::vector<std::uint32_t>(200, kRowsOfBlock), load, kept == 1000 ? 199 * bytes : kept * bytes);
    BatchCursor cursor(data, 3, true);
    const std::vector<float> labels = epoch_of(cursor, 0);
    EXPECT_EQ(blocks_among(std::span(labels).first(expected * kRowsOfBlock)), expected) << kept;
    EXPECT_GT(blocks_among(std::span(labels).first(kRowsOfBlock)), 7u) << kept;
    if (kept < 1000) {
      EXPECT_LE(most, static_cast<std::size_t>(kept + 2 * expected)) << kept;  // a batch spans two windows
    }
  }
}

TEST(BatchCursor, GoesOnInTheMiddleOfAnEpoch) {
  for (Dataset data : {in_memory(50), read_in_passes(50, 0)}) {
    BatchCursor cursor(data, 3, true);
    const std::vector<float> all = epoch_of(cursor, 2);
    for (const std::size_t skipped : {0u, 1u, 319u, 320u, 321u, 700u, 999u, 1000u}) {
      BatchCursor resumed(data, 3, true);
      EXPECT_EQ(epoch_of(resumed, 2, skipped),
                std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(skipped), all.end()))
          << skipped;
    }
  }
}

}  // namespace
}  // namespace tulle::linear
