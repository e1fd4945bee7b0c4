// Mini-batches of a rank's rows, epoch by epoch, in an order that depends on the seed alone.
#pragma once

#include <cstdint>
#include <memory>

#include "tulle/linear/dataset.hpp"

namespace tulle::linear {

/// Rows by reference; keeps alive the blocks they lie in.
struct Batch {
  PoolVector<RowView> rows;
  PoolVector<float> labels;
  PoolVector<std::shared_ptr<const Rows>> blocks;

  std::size_t size() const { return rows.size(); }
  std::uint64_t nonzeros() const;
  void clear();
};

/// One epoch visits every row once: blocks in random order, and in each its rows in random order.
class BatchCursor {
 public:
  BatchCursor(Dataset& data, std::uint64_t seed, bool shuffle) : data_(data), seed_(seed), shuffle_(shuffle) {}

  /// Goes to the row that follows `skipped_rows` others of this epoch. Skipped blocks are not read.
  void begin_epoch(std::uint64_t epoch, std::uint64_t skipped_rows = 0);
  /// The next rows, fewer than `count` only at the end.
  void next(std::size_t count, Batch& batch);

 private:
  void open_block();

  Dataset& data_;
  std::uint64_t seed_;
  bool shuffle_;
  std::uint64_t epoch_ = 0;
  PoolVector<std::uint32_t> block_order_;
  std::size_t next_block_ = 0;
  std::shared_ptr<const Rows> block_;
  PoolVector<std::uint32_t> row_order_;
  std::size_t next_row_ = 0;
};

}  // namespace tulle::linear
