#include "linear/batches.hpp"

#include <algorithm>
#include <numeric>

#include "tulle/base/philox.hpp"

namespace tulle::linear {
namespace {

// What Philox is asked for, beside the number of a window: the order of an epoch's blocks.
constexpr std::uint64_t kBlocks = 0xffffffffu;

template <class T>
void shuffle(PoolVector<T>& order, std::uint64_t seed, std::uint64_t epoch, std::uint64_t what) {
  Philox random(seed, epoch << 32 | what);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
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

std::size_t BatchCursor::blocks_of_window() {
  if (!shuffle_) return 1;
  if (data_.is_in_memory() || data_.blocks() == 0) return std::max<std::size_t>(1, data_.blocks());
  const std::uint64_t bytes_of_block = std::max<std::uint64_t>(1, data_.block(0)->bytes());
  return std::clamp<std::size_t>(data_.memory_bytes() / bytes_of_block, kLeastBlocks, kMostBlocks);
}

std::size_t BatchCursor::window_end() const { return std::min(next_block_ + blocks_of_window_, block_order_.size()); }

void BatchCursor::begin_epoch(std::uint64_t epoch, std::uint64_t skipped_rows) {
  epoch_ = epoch;
  if (window_ == nullptr) blocks_of_window_ = blocks_of_window();
  block_order_.resize(data_.blocks());
  std::iota(block_order_.begin(), block_order_.end(), 0u);
  if (shuffle_) shuffle(block_order_, seed_, epoch, kBlocks);
  next_row_ = 0;
  row_order_.clear();
  for (next_block_ = 0; next_block_ < block_order_.size(); next_block_ = window_end()) {
    std::uint64_t rows = 0;
    for (std::size_t i = next_block_; i < window_end(); ++i) rows += data_.rows_of_block(block_order_[i]);
    if (skipped_rows < rows) break;
    skipped_rows -= rows;
  }
  if (skipped_rows == 0 || next_block_ == block_order_.size()) return;
  open_window();
  next_row_ = skipped_rows;
}

void BatchCursor::open_window() {
  window_ = nullptr;  // its blocks may make room
  const auto window = std::allocate_shared<Blocks>(PoolAllocator<Blocks>());
  const std::uint64_t number = next_block_ / blocks_of_window_;
  row_order_.clear();
  for (const std::size_t end = window_end(); next_block_ < end;) {
    window->push_back(data_.block(block_order_[next_block_++]));
    if (next_block_ < block_order_.size()) data_.read_ahead(block_order_[next_block_]);
    const auto block = static_cast<std::uint32_t>(window->size() - 1);
    for (std::uint32_t row = 0; row < window->back()->size(); ++row) row_order_.emplace_back(block, row);
  }
  if (shuffle_) shuffle(row_order_, seed_, epoch_, number);
  next_row_ = 0;
  window_ = window;
}

void BatchCursor::next(std::size_t count, Batch& batch) {
  batch.clear();
  while (batch.size() < count) {
    if (next_row_ == row_order_.size()) {
      if (next_block_ == block_order_.size()) return;
      open_window();
      continue;
    }
    if (batch.blocks.empty() || batch.blocks.back() != window_) batch.blocks.push_back(window_);
    const auto [block, row] = row_order_[next_row_++];
    const Rows& rows = *(*window_)[block];
    batch.rows.push_back(rows[row]);
    batch.labels.push_back(rows.label(row));
  }
}

}  // namespace tulle::linear
