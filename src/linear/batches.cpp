#include "linear/batches.hpp"

#include <numeric>

#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

// What Philox is asked for: the order of an epoch's blocks, or of the rows of one block.
void fill_order(PoolVector<std::uint32_t>& order, std::size_t count, bool shuffle, std::uint64_t seed,
                std::uint64_t epoch, std::uint64_t what) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0u);
  if (!shuffle) return;
  Philox random(seed, epoch << 32 | what);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

}  // namespace

std::uint64_t Batch::nonzeros() const {
  std::uint64_t sum = 0;
  for (const RowView& row : rows) sum += row.indices.size();
  return sum;
}

void Batch::clear() {
  rows.clear();
  labels.clear();
  blocks.clear();
}

void BatchCursor::begin_epoch(std::uint64_t epoch, std::uint64_t skipped_rows) {
  epoch_ = epoch;
  fill_order(block_order_, data_.blocks(), shuffle_, seed_, epoch, 0xffffffffu);
  block_ = nullptr;
  next_row_ = 0;
  row_order_.clear();
  for (next_block_ = 0; next_block_ < block_order_.size(); ++next_block_) {
    const std::uint32_t rows = data_.rows_of_block(block_order_[next_block_]);
    if (skipped_rows < rows) break;
    skipped_rows -= rows;
  }
  if (skipped_rows == 0 || next_block_ == block_order_.size()) return;
  open_block();
  next_row_ = skipped_rows;
}

void BatchCursor::open_block() {
  const std::uint32_t number = block_order_[next_block_++];
  block_ = data_.block(number);
  if (next_block_ < block_order_.size()) data_.read_ahead(block_order_[next_block_]);
  fill_order(row_order_, block_->size(), shuffle_, seed_, epoch_, number);
  next_row_ = 0;
}

void BatchCursor::next(std::size_t count, Batch& batch) {
  batch.clear();
  while (batch.size() < count) {
    if (next_row_ == row_order_.size()) {
      if (next_block_ == block_order_.size()) return;
      open_block();
      continue;
    }
    if (batch.blocks.empty() || batch.blocks.back() != block_) batch.blocks.push_back(block_);
    const std::uint32_t row = row_order_[next_row_++];
    batch.rows.push_back((*block_)[row]);
    batch.labels.push_back(block_->label(row));
  }
}

}  // namespace tulle::linear
