#include "tulle/linear/csr_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/little_endian.hpp"
#include "linear/output_file.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

constexpr std::string_view kMagic = "TULLECSR";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 64, kEntryBytes = 40;

[[noreturn]] void refuse(const PositionalReader& reader, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", reader.path(), reason));
}

std::array<std::byte, kHeaderBytes> encode_header(const CsrInfo& info, std::uint64_t table_offset,
                                                  std::uint32_t table_checksum) {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  store_at<std::uint32_t>(bytes, 8, kVersion);
  store_at<std::uint64_t>(bytes, 16, info.rows);
  store_at<std::uint64_t>(bytes, 24, info.features);
  store_at<std::uint64_t>(bytes, 32, info.nonzeros);
  store_at<std::uint64_t>(bytes, 40, table_offset);
  store_at<std::uint64_t>(bytes, 48, info.blocks.size());
  store_at<std::uint32_t>(bytes, 56, table_checksum);
  store_at<std::uint32_t>(bytes, 60, crc32c(std::span(bytes).first(60)));
  return bytes;
}

std::vector<std::byte> encode_table(const std::vector<CsrBlock>& blocks) {
  std::vector<std::byte> bytes(blocks.size() * kEntryBytes);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::span entry = std::span(bytes).subspan(i * kEntryBytes, kEntryBytes);
    store_at(entry, 0, blocks[i].offset);
    store_at(entry, 8, blocks[i].bytes);
    store_at(entry, 16, blocks[i].rows);
    store_at(entry, 24, blocks[i].nonzeros);
    store_at(entry, 32, blocks[i].checksum);
    store_at(entry, 36, blocks[i].is_binary);
  }
  return bytes;
}

CsrBlock decode_entry(std::span<const std::byte> entry) {
  return {load_at<std::uint64_t>(entry, 0),  load_at<std::uint64_t>(entry, 8),  load_at<std::uint64_t>(entry, 16),
          load_at<std::uint64_t>(entry, 24), load_at<std::uint32_t>(entry, 32), load_at<std::uint32_t>(entry, 36)};
}

std::uint64_t bytes_of(const CsrBlock& block) {
  return 8 * block.rows + (block.is_binary != 0 ? 4 : 8) * block.nonzeros;
}

// The sums are bounded before they are made: an entry that lies must not wrap around.
void check_entry(const PositionalReader& reader, const CsrBlock& block, std::size_t number) {
  const std::uint64_t size = reader.size();
  const bool fits = block.offset >= kHeaderBytes && block.offset <= size && block.bytes <= size - block.offset &&
                    block.rows <= size && block.nonzeros <= size && bytes_of(block) == block.bytes &&
                    block.rows < (std::uint64_t{1} << 32) && block.is_binary <= 1;
  if (!fits) refuse(reader, fmt::format("block {} of the table does not fit the file", number));
}

template <class T>
std::span<const T> take(std::span<const std::byte>& bytes, std::uint64_t count) {
  const std::span values(reinterpret_cast<const T*>(bytes.data()), count);
  bytes = bytes.subspan(count * sizeof(T));
  return values;
}

void require_finite(const PositionalReader& reader, std::span<const float> numbers, std::size_t block) {
  const bool all = std::all_of(numbers.begin(), numbers.end(), [](float number) { return std::isfinite(number); });
  if (!all) refuse(reader, fmt::format("block {} holds a number that is not finite", block));
}

Rows decode_block(const PositionalReader& reader, const CsrInfo& info, std::size_t number,
                  std::span<const std::byte> bytes) {
  const CsrBlock& block = info.blocks[number];
  const auto labels = take<float>(bytes, block.rows);
  const auto lengths = take<std::uint32_t>(bytes, block.rows);
  const auto indices = take<std::uint32_t>(bytes, block.nonzeros);
  const auto values = take<float>(bytes, block.is_binary != 0 ? 0 : block.nonzeros);
  require_finite(reader, labels, number);
  require_finite(reader, values, number);
  Rows rows;
  std::size_t at = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (lengths[row] > indices.size() - at) refuse(reader, fmt::format("block {}: rows are too long", number));
    const RowView view{indices.subspan(at, lengths[row]),
                       values.empty() ? std::span<const float>() : values.subspan(at, lengths[row])};
    const bool increases =
        std::adjacent_find(view.indices.begin(), view.indices.end(), std::greater_equal<>()) == view.indices.end();
    if (!increases || (!view.indices.empty() && view.indices.back() >= info.features)) {
      refuse(reader, fmt::format("block {}: indices of row {} are out of order or too large", number, row));
    }
    rows.append(view, labels[row]);
    at += lengths[row];
  }
  if (at != indices.size()) refuse(reader, fmt::format("block {}: rows are too short", number));
  return rows;
}

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

}  // namespace

struct CsrWriter::State {
  OutputFile file;
  std::uint64_t block_bytes;
  CsrInfo info{};
  Rows open{};
};

CsrWriter::CsrWriter(const std::string& path, std::uint64_t block_bytes)
    : state_(new State{OutputFile(path), block_bytes}) {
  state_->file.write(std::array<std::byte, kHeaderBytes>{});
}

CsrWriter::~CsrWriter() = default;

void CsrWriter::add(RowView row, float label) {
  state_->open.append(row, label);
  if (state_->open.bytes() >= state_->block_bytes) end_block();
}

void CsrWriter::add(const Rows& rows) {
  for (std::size_t row = 0; row < rows.size(); ++row) add(rows[row], rows.label(row));
}

void CsrWriter::end_block() {
  State& state = *state_;
  const Rows& rows = state.open;
  CsrBlock block{.offset = state.file.position(), .rows = rows.size(), .nonzeros = rows.nonzeros()};
  block.is_binary = rows.is_binary() ? 1 : 0;
  std::vector<std::uint32_t> lengths;
  for (std::size_t row = 0; row < rows.size(); ++row)
    lengths.push_back(static_cast<std::uint32_t>(rows[row].indices.size()));
  const auto write = [&](auto values) {
    state.file.write_array(values);
    block.checksum = crc32c(std::as_bytes(values), block.checksum);
  };
  write(rows.labels());
  write(std::span<const std::uint32_t>(lengths));
  write(rows.indices());
  write(rows.values());
  block.bytes = state.file.position() - block.offset;
  state.info.rows += block.rows;
  state.info.nonzeros += block.nonzeros;
  state.info.features = std::max(state.info.features, rows.features());
  state.info.blocks.push_back(block);
  state.open.clear();
}

CsrInfo CsrWriter::finish(std::uint64_t features) {
  State& state = *state_;
  if (state.open.size() > 0) end_block();
  if (features != 0 && features < state.info.features) {
    throw Error(ErrorKind::bad_input,
                fmt::format("the data has {} features, more than {}", state.info.features, features));
  }
  state.info.features = std::max(state.info.features, features);
  const std::uint64_t table_offset = state.file.position();
  const std::vector<std::byte> table = encode_table(state.info.blocks);
  state.file.write(table);
  state.file.write_at(0, encode_header(state.info, table_offset, crc32c(table)));
  state.file.commit();
  return state.info;
}

bool is_csr_file(const PositionalReader& reader) {
  std::array<char, kMagic.size()> start{};
  if (reader.size() < kHeaderBytes) return false;
  reader.read_at(0, std::as_writable_bytes(std::span(start)));
  return std::string_view(start.data(), start.size()) == kMagic;
}

CsrInfo read_csr_info(const PositionalReader& reader) {
  if (!is_csr_file(reader)) refuse(reader, "not a file of 'tulle convert'");
  std::array<std::byte, kHeaderBytes> header{};
  reader.read_at(0, header);
  if (crc32c(std::span(header).first(60)) != load_at<std::uint32_t>(header, 60))
    refuse(reader, "the header is damaged");
  if (const auto version = load_at<std::uint32_t>(header, 8); version != kVersion) {
    refuse(reader, fmt::format("version {} of the format; this program knows {}", version, kVersion));
  }
  CsrInfo info{.rows = load_at<std::uint64_t>(header, 16),
               .features = load_at<std::uint64_t>(header, 24),
               .nonzeros = load_at<std::uint64_t>(header, 32)};
  const auto table_offset = load_at<std::uint64_t>(header, 40), count = load_at<std::uint64_t>(header, 48);
  const bool fits = table_offset <= reader.size() && count <= (reader.size() - table_offset) / kEntryBytes;
  if (!fits || info.features > kMaxFeatures) refuse(reader, "the file is shorter than its header says");
  std::vector<std::byte> table(count * kEntryBytes);
  reader.read_at(table_offset, table);
  if (crc32c(table) != load_at<std::uint32_t>(header, 56)) refuse(reader, "the table of blocks is damaged");
  std::uint64_t rows = 0, nonzeros = 0;
  for (std::size_t i = 0; i < count; ++i) {
    info.blocks.push_back(decode_entry(std::span(table).subspan(i * kEntryBytes, kEntryBytes)));
    check_entry(reader, info.blocks.back(), i);
    rows += info.blocks.back().rows;
    nonzeros += info.blocks.back().nonzeros;
  }
  if (rows != info.rows || nonzeros != info.nonzeros)
    refuse(reader, "the blocks do not add up to the header's numbers");
  return info;
}

Rows read_csr_block(const PositionalReader& reader, const CsrInfo& info, std::size_t block) {
  const CsrBlock& entry = info.blocks[block];
  Buffer bytes = Buffer::allocate(entry.bytes);
  reader.read_at(entry.offset, {bytes.mutable_data(), bytes.size()});
  if (crc32c(bytes.bytes()) != entry.checksum) refuse(reader, fmt::format("block {} is damaged", block));
  return decode_block(reader, info, block, bytes.bytes());
}

Dataset open_csr_part(const ReaderPtr& reader, Part part, std::uint64_t memory_bytes) {
  const auto info = std::make_shared<CsrInfo>(read_csr_info(*reader));
  const auto border = [&](int index) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(info->rows) * static_cast<unsigned>(index) /
                                      static_cast<unsigned>(part.count));
  };
  const auto cuts = cut_blocks(*info, border(part.index), border(part.index + 1));
  std::vector<std::uint32_t> rows_of_block;
  for (const BlockCut& cut : cuts) rows_of_block.push_back(cut.count);
  const auto load = [reader, info, cuts](std::size_t i) {
    Rows rows = read_csr_block(*reader, *info, cuts[i].block);
    const bool is_whole = cuts[i].count == rows.size();
    return std::make_shared<const Rows>(is_whole ? std::move(rows) : slice_of(rows, cuts[i]));
  };
  return Dataset(info->features, std::move(rows_of_block), load, memory_bytes);
}

}  // namespace tulle::linear
