#include "tulle/linear/csr_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linear/csr_layout.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle::linear {
namespace {

[[noreturn]] void refuse(const PositionalReader& reader, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", reader.path(), reason));
}

CsrHeader read_header(const PositionalReader& reader) {
  if (!is_csr_file(reader)) refuse(reader, "not a file of 'tulle convert'");
  CsrHeaderBytes bytes{};
  reader.read_at(0, bytes);
  if (!is_intact(bytes)) refuse(reader, "the header is damaged");
  const CsrHeader header = decode_header(bytes);
  if (header.version != kCsrVersion) {
    refuse(reader, fmt::format("version {} of the format; this program knows {}", header.version, kCsrVersion));
  }
  return header;
}

std::vector<std::byte> read_table(const PositionalReader& reader, const CsrHeader& header) {
  const std::uint64_t size = reader.size();
  const bool fits = header.table_offset <= size && header.blocks <= (size - header.table_offset) / kCsrEntryBytes;
  if (!fits || header.features > kMaxFeatures) refuse(reader, "the file is shorter than its header says");
  std::vector<std::byte> table(header.blocks * kCsrEntryBytes);
  reader.read_at(header.table_offset, table);
  if (crc32c(table) != header.table_checksum) refuse(reader, "the table of blocks is damaged");
  return table;
}

std::uint64_t bytes_of(const CsrBlock& block) {
  return 8 * block.rows + (block.is_binary != 0 ? 4 : 8) * block.nonzeros;
}

// The sums are bounded before they are made: an entry that lies must not wrap around.
void check_entry(const PositionalReader& reader, const CsrBlock& block, std::size_t number) {
  const std::uint64_t size = reader.size();
  const bool fits = block.offset >= kCsrHeaderBytes && block.offset <= size && block.bytes <= size - block.offset &&
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

}  // namespace

bool is_csr_file(const PositionalReader& reader) {
  std::array<char, kCsrMagic.size()> start{};
  if (reader.size() < kCsrHeaderBytes) return false;
  reader.read_at(0, std::as_writable_bytes(std::span(start)));
  return std::string_view(start.data(), start.size()) == kCsrMagic;
}

CsrInfo read_csr_info(const PositionalReader& reader) {
  const CsrHeader header = read_header(reader);
  CsrInfo info{.rows = header.rows, .features = header.features, .nonzeros = header.nonzeros};
  const std::vector<std::byte> table = read_table(reader, header);
  std::uint64_t rows = 0, nonzeros = 0;
  for (std::size_t i = 0; i < header.blocks; ++i) {
    info.blocks.push_back(decode_entry(std::span(table).subspan(i * kCsrEntryBytes, kCsrEntryBytes)));
    check_entry(reader, info.blocks.back(), i);
    rows += info.blocks.back().rows;
    nonzeros += info.blocks.back().nonzeros;
  }
  if (rows != info.rows || nonzeros != info.nonzeros)
    refuse(reader, "the blocks do not add up to the header's numbers");
  return info;
}

Rows decode_block(const PositionalReader& reader, const CsrInfo& info, std::size_t number,
                  std::span<const std::byte> bytes) {
  const CsrBlock& block = info.blocks[number];
  if (crc32c(bytes) != block.checksum) refuse(reader, fmt::format("block {} is damaged", number));
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

Rows read_csr_block(const PositionalReader& reader, const CsrInfo& info, std::size_t block) {
  Buffer bytes = Buffer::allocate(info.blocks[block].bytes);
  reader.read_at(info.blocks[block].offset, {bytes.mutable_data(), bytes.size()});
  return decode_block(reader, info, block, bytes.bytes());
}

}  // namespace tulle::linear
