// A rank's part of a file in the binary format.
#include <algorithm>
#include <utility>

#include "linear/csr_layout.hpp"

namespace tulle::linear {
namespace {

// The rows [begin, end) of the file that one block has, and which they are inside it.
struct BlockCut {
  std::size_t block;
  std::uint32_t first, count;
};

std::vector<BlockCut> cut_blocks(const CsrInfo& info, std::uint64_t begin, std::uint64_t end) {
  std::vector<BlockCut> cuts;
  std::uint64_t start = 0;
  for (std::size_t block = 0; block < info.blocks.size(); ++block) {
    const std::uint64_t stop = start + info.blocks[block].rows;
    const std::uint64_t from = std::max(begin, start), to = std::min(end, stop);
    if (from < to)
      cuts.push_back({block, static_cast<std::uint32_t>(from - start), static_cast<std::uint32_t>(to - from)});
    start = stop;
  }
  return cuts;
}

Rows slice_of(const Rows& rows, const BlockCut& cut) {
  Rows part;
  for (std::size_t row = cut.first; row < cut.first + cut.count; ++row) part.append(rows[row], rows.label(row));
  return part;
}

// Reads the blocks of a part, and at most one of them ahead.
class PartSource {
 public:
  PartSource(ReaderPtr reader, std::shared_ptr<const CsrInfo> info, std::vector<BlockCut> cuts)
      : reader_(std::move(reader)), info_(std::move(info)), cuts_(std::move(cuts)) {}

  std::vector<std::uint32_t> rows_of_block() const {
    std::vector<std::uint32_t> rows;
    for (const BlockCut& cut : cuts_) rows.push_back(cut.count);
    return rows;
  }

  std::shared_ptr<const Rows> load(std::size_t i) {
    Rows rows = is_ahead(i) ? finish_ahead() : read_csr_block(*reader_, *info_, cuts_[i].block);
    const bool is_whole = cuts_[i].count == rows.size();
    return std::make_shared<const Rows>(is_whole ? std::move(rows) : slice_of(rows, cuts_[i]));
  }

  void read_ahead(std::size_t i) {
    if (is_ahead(i)) return;
    const CsrBlock& block = info_->blocks[cuts_[i].block];
    auto ahead = std::make_unique<Ahead>(Ahead{i, Buffer::allocate(block.bytes), nullptr});
    ahead->pending = reader_->start_read_at(block.offset, {ahead->bytes.mutable_data(), block.bytes});
    ahead_ = std::move(ahead);
  }

 private:
  struct Ahead {
    std::size_t index;
    Buffer bytes;
    std::unique_ptr<PendingRead> pending;  // ends before `bytes` do
  };

  bool is_ahead(std::size_t i) const { return ahead_ && ahead_->index == i; }
  Rows finish_ahead() {
    const std::unique_ptr<Ahead> ahead = std::exchange(ahead_, nullptr);
    ahead->pending->finish();
    return decode_block(*reader_, *info_, cuts_[ahead->index].block, ahead->bytes.bytes());
  }

  ReaderPtr reader_;
  std::shared_ptr<const CsrInfo> info_;
  std::vector<BlockCut> cuts_;
  std::unique_ptr<Ahead> ahead_;
};

}  // namespace

Dataset open_csr_part(const ReaderPtr& reader, Part part, std::uint64_t memory_bytes) {
  const auto info = std::make_shared<CsrInfo>(read_csr_info(*reader));
  const auto border = [&](int index) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(info->rows) * static_cast<unsigned>(index) /
                                      static_cast<unsigned>(part.count));
  };
  const auto source =
      std::make_shared<PartSource>(reader, info, cut_blocks(*info, border(part.index), border(part.index + 1)));
  return Dataset(
      info->features, source->rows_of_block(), [source](std::size_t i) { return source->load(i); }, memory_bytes,
      [source](std::size_t i) { source->read_ahead(i); });
}

}  // namespace tulle::linear
