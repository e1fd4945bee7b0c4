// Blocks that are read while others are computed on.
#include <gtest/gtest.h>

#include <atomic>

#include "base/error_of.hpp"
#include "base/temporary_directory.hpp"
#include "linear/ranks.hpp"
#include "tulle/base/error.hpp"
#include "tulle/linear/csr_file.hpp"

namespace tulle::linear {
namespace {

// Counts who asks, and can fail.
class WatchedReader final : public PositionalReader {
 public:
  explicit WatchedReader(ReaderPtr file) : file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  std::uint64_t size() const override { return file_->size(); }
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    if (fails_) throw Error(ErrorKind::system, "rows.tcsr: the disk is gone");
    reads_ += 1;
    file_->read_at(offset, bytes);
  }
  std::unique_ptr<PendingRead> start_read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    started_ += 1;
    return PositionalReader::start_read_at(offset, bytes);
  }
  mutable std::atomic<int> reads_ = 0, started_ = 0;
  std::atomic<bool> fails_ = false;

 private:
  ReaderPtr file_;
};

class ReadAhead : public ::testing::Test {
 protected:
  ReadAhead() {
    CsrWriter writer(scratch_.path("rows"), 2000);
    writer.add(rows_);
    blocks_ = writer.finish().blocks.size();
    reader_ = std::make_shared<WatchedReader>(open_file(scratch_.path("rows")));
  }
  int reads_of_blocks(Dataset& data) {
    const int before = reader_->reads_;
    data.for_each_block([](const Rows&) {});
    return reader_->reads_ - before;
  }

  testing::TemporaryDirectory scratch_;
  Rows rows_ = testing::sample_rows({.rows = 300});
  std::size_t blocks_ = 0;
  std::shared_ptr<WatchedReader> reader_;
};

TEST_F(ReadAhead, GivesTheRowsThatAreInTheFile) {
  ASSERT_GT(blocks_, 5u);
  Dataset data = open_csr_part(reader_, {}, 0);
  Rows all;
  data.for_each_block([&](const Rows& rows) {
    for (std::size_t row = 0; row < rows.size(); ++row) all.append(rows[row], rows.label(row));
  });
  testing::expect_same_rows(all, rows_);
}

TEST_F(ReadAhead, ReadsEveryBlockOnceAndAllButTheFirstAhead) {
  Dataset data = open_csr_part(reader_, {}, 0);
  EXPECT_EQ(reads_of_blocks(data), static_cast<int>(blocks_));
  EXPECT_EQ(reader_->started_, static_cast<int>(blocks_) - 1);
}

TEST_F(ReadAhead, LeavesAloneWhatIsInMemory) {
  Dataset data = open_csr_part(reader_, {}, 1 << 20);
  reads_of_blocks(data);
  EXPECT_EQ(reads_of_blocks(data), 0);
}

TEST_F(ReadAhead, TakesABlockThatNobodyExpected) {
  Dataset data = open_csr_part(reader_, {}, 0);
  const Rows third = *data.block(3);
  data.read_ahead(5);
  testing::expect_same_rows(*data.block(3), third);
}

TEST_F(ReadAhead, TellsOfFailuresWhenTheBlockIsTaken) {
  Dataset data = open_csr_part(reader_, {}, 0);
  reader_->fails_ = true;
  data.read_ahead(2);
  EXPECT_EQ(testing::error_of([&] { data.block(2); }), "rows.tcsr: the disk is gone");
}

TEST_F(ReadAhead, ServesTrainingInPasses) {
  Dataset data = open_csr_part(reader_, {}, 0), kept{rows_};
  const TrainOptions options{.epochs = 3, .batch_rows = 10, .shuffle = false};
  run_threads(1, [&](Communicator& communicator) {
    EXPECT_EQ(train(communicator, data, nullptr, options).model.weights,
              train(communicator, kept, nullptr, options).model.weights);
  });
  EXPECT_GT(reader_->started_, 3 * static_cast<int>(blocks_ - 2));
}

}  // namespace
}  // namespace tulle::linear
