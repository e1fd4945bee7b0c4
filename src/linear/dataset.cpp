#include "tulle/linear/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "linear/text_chunks.hpp"
#include "tulle/base/error.hpp"
#include "tulle/base/philox.hpp"
#include "tulle/linear/csr_file.hpp"

namespace tulle::linear {
namespace {

// A filter of rows that is the same whenever and by whomever it is asked.
bool is_in_share(std::uint64_t seed, std::size_t block, std::uint32_t row, double share) {
  return static_cast<double>(Philox(seed, block).at(row) >> 11) * 0x1p-53 < share;
}

Dataset filtered(const Dataset& all, const std::function<bool(std::size_t, std::uint32_t)>& keeps) {
  std::vector<std::uint32_t> rows_of_block;
  for (std::size_t block = 0; block < all.blocks(); ++block) {
    std::uint32_t kept = 0;
    for (std::uint32_t row = 0; row < all.rows_of_block(block); ++row) kept += keeps(block, row);
    rows_of_block.push_back(kept);
  }
  const auto source = std::make_shared<Dataset>(all);
  const auto load = [source, keeps](std::size_t block) {
    const auto rows = source->block(block);
    const auto kept = std::make_shared<Rows>();
    for (std::uint32_t row = 0; row < rows->size(); ++row) {
      if (keeps(block, row)) kept->append((*rows)[row], rows->label(row));
    }
    return kept;
  };
  return Dataset(all.features(), std::move(rows_of_block), load, 0,
                 [source](std::size_t block) { source->read_ahead(block); });
}

Dataset read_text(const ReaderPtr& reader, const DataOptions& options) {
  std::vector<std::shared_ptr<const Rows>> blocks;
  std::uint64_t features = 0, bytes = 0;
  const auto parse = [&](std::string_view line, Rows& rows) { return parse_line(line, options.text, rows); };
  const std::uint64_t bad_lines = read_lines(reader, options.part, parse, options.text.skip_bad, [&](Rows rows) {
    features = std::max(features, rows.features());
    bytes += rows.bytes();
    if (options.on_rows) options.on_rows(rows.size());
    if (bytes > options.memory_bytes) {
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: more than {} bytes of rows; 'tulle convert' makes a file that is read in passes",
                              reader->path(), options.memory_bytes));
    }
    blocks.push_back(std::make_shared<const Rows>(std::move(rows)));
  });
  Dataset data(features, std::move(blocks));
  data.set_bad_lines(bad_lines);
  return data;
}

}  // namespace

Dataset::Dataset(std::uint64_t features, std::vector<std::uint32_t> rows_of_block, Load load,
                 std::uint64_t memory_bytes, ReadAhead read_ahead)
    : features_(features),
      rows_(std::accumulate(rows_of_block.begin(), rows_of_block.end(), std::uint64_t{0})),
      rows_of_block_(std::move(rows_of_block)),
      load_(std::move(load)),
      read_ahead_(std::move(read_ahead)),
      memory_bytes_(memory_bytes),
      memory_left_(memory_bytes),
      kept_(rows_of_block_.size()) {}

Dataset::Dataset(Rows rows) : features_(rows.features()), rows_(rows.size()) {
  kept_.push_back(std::make_shared<Rows>(std::move(rows)));
  rows_of_block_.push_back(static_cast<std::uint32_t>(rows_));
}

Dataset::Dataset(std::uint64_t features, std::vector<std::shared_ptr<const Rows>> blocks)
    : features_(features), kept_(std::move(blocks)) {
  for (const auto& rows : kept_) {
    rows_ += rows->size();
    rows_of_block_.push_back(static_cast<std::uint32_t>(rows->size()));
  }
}

bool Dataset::is_in_memory() const {
  return std::all_of(kept_.begin(), kept_.end(), [](const auto& rows) { return rows != nullptr; });
}

std::shared_ptr<const Rows> Dataset::block(std::size_t block) {
  if (kept_[block] != nullptr) return kept_[block];
  std::shared_ptr<const Rows> rows = load_(block);
  if (rows->bytes() <= memory_left_) {
    memory_left_ -= rows->bytes();
    kept_[block] = rows;
  }
  return rows;
}

void Dataset::read_ahead(std::size_t block) {
  if (kept_[block] == nullptr && read_ahead_) read_ahead_(block);
}

std::pair<Dataset, Dataset> Dataset::split(double share, std::uint64_t seed) const {
  const auto is_in = [=](std::size_t block, std::uint32_t row) { return is_in_share(seed, block, row, share); };
  return {filtered(*this, is_in),
          filtered(*this, [=](std::size_t block, std::uint32_t row) { return !is_in(block, row); })};
}

Dataset Dataset::divided(Part part) const {
  const auto count = static_cast<std::size_t>(part.count), index = static_cast<std::size_t>(part.index);
  return filtered(*this, [=](std::size_t block, std::uint32_t row) { return (block + row) % count == index; });
}

std::uint64_t read_lines(const ReaderPtr& reader, Part part, const ParseLine& parse, bool skip_bad,
                         const std::function<void(Rows rows)>& take) {
  const auto chunks = open_text(reader, part);
  std::uint64_t bad_lines = 0;
  const OnFault on_fault = [&](std::size_t offset, std::string_view line, const LineFault& fault) {
    bad_lines += 1;
    if (skip_bad) return;
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}:{}: {}: '{}'", reader->path(), chunks->line_at(offset),
                                                  fault.column, fault.reason, line.substr(0, 60)));
  };
  for (std::string_view text = chunks->next(); !text.empty(); text = chunks->next()) {
    Rows rows;
    parse_lines(text, parse, rows, on_fault);
    if (rows.size() > 0) take(std::move(rows));
  }
  return bad_lines;
}

Dataset open_dataset(const ReaderPtr& reader, const DataOptions& options) {
  if (is_csr_file(*reader)) return open_csr_part(reader, options.part, options.memory_bytes);
  return read_text(reader, options);
}

}  // namespace tulle::linear
