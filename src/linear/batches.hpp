// Mini-batches of a rank's rows, epoch by epoch, in an order that depends on the seed alone.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "tulle/linear/dataset.hpp"

namespace tulle::linear {

using Blocks = PoolVector<std::shared_ptr<const Rows>>;

/// Rows by reference; keeps alive the blocks they lie in.
struct Batch {
  PoolVector<RowView> rows;
  PoolVector<float> labels;
  PoolVector<std::shared_ptr<const Blocks>> blocks;

  std::size_t size() const { return rows.size(); }
  std::uint64_t nonzeros() const;
  void clear();
};

/// One epoch visits every row once. Shuffled, blocks come in random order and are taken a *window* at a time, whose
/// rows come in random order. Data that is in memory is one window, so that all rows may come in any order. Of other
/// data a window has kLeastBlocks to kMostBlocks, of no more bytes than Dataset keeps: so a file that is sorted is seen
/// at that many places of it at a time.
class BatchCursor {
 public:
  static constexpr std::size_t kLeastBlocks = 16, kMostBlocks = 64;

  BatchCursor(Dataset& data, std::uint64_t seed, bool shuffle) : data_(data), seed_(seed), shuffle_(shuffle) {}

  /// Goes to the row that follows `skipped_rows` others of this epoch. Windows that are skipped are not read.
  void begin_epoch(std::uint64_t epoch, std::uint64_t skipped_rows = 0);
  /// The next rows, fewer than `count` only at the end.
  void next(std::size_t count, Batch& batch);

 private:
  /// Where a row lies: which block of the window, and which row of it.
  using Place = std::pair<std::uint32_t, std::uint32_t>;

  std::size_t blocks_of_window();
  std::size_t window_end() const;
  void open_window();

  Dataset& data_;
  std::uint64_t seed_;
  bool shuffle_;
  std::uint64_t epoch_ = 0;
  PoolVector<std::uint32_t> block_order_;
  std::size_t blocks_of_window_ = 1;
  std::size_t next_block_ = 0;
  std::shared_ptr<const Blocks> window_;
  PoolVector<Place> row_order_;
  std::size_t next_row_ = 0;
};

}  // namespace tulle::linear
