#include "linear/csr_layout.hpp"

#include <cstring>

#include "base/little_endian.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle::linear {
namespace {

enum HeaderField : std::size_t {
  kVersionAt = 8,
  kRowsAt = 16,
  kFeaturesAt = 24,
  kNonzerosAt = 32,
  kTableAt = 40,
  kBlocksAt = 48,
  kTableChecksumAt = 56,
  kChecksumAt = 60,
};

enum EntryField : std::size_t {
  kOffsetAt = 0,
  kBytesAt = 8,
  kBlockRowsAt = 16,
  kBlockNonzerosAt = 24,
  kBlockChecksumAt = 32,
  kIsBinaryAt = 36,
};

}  // namespace

CsrHeaderBytes encode_header(const CsrHeader& header) {
  CsrHeaderBytes bytes{};
  std::memcpy(bytes.data(), kCsrMagic.data(), kCsrMagic.size());
  store_at(bytes, kVersionAt, header.version);
  store_at(bytes, kRowsAt, header.rows);
  store_at(bytes, kFeaturesAt, header.features);
  store_at(bytes, kNonzerosAt, header.nonzeros);
  store_at(bytes, kTableAt, header.table_offset);
  store_at(bytes, kBlocksAt, header.blocks);
  store_at(bytes, kTableChecksumAt, header.table_checksum);
  store_at(bytes, kChecksumAt, crc32c(std::span(bytes).first(kChecksumAt)));
  return bytes;
}

CsrHeader decode_header(const CsrHeaderBytes& bytes) {
  return {.version = load_at<std::uint32_t>(bytes, kVersionAt),
          .rows = load_at<std::uint64_t>(bytes, kRowsAt),
          .features = load_at<std::uint64_t>(bytes, kFeaturesAt),
          .nonzeros = load_at<std::uint64_t>(bytes, kNonzerosAt),
          .table_offset = load_at<std::uint64_t>(bytes, kTableAt),
          .blocks = load_at<std::uint64_t>(bytes, kBlocksAt),
          .table_checksum = load_at<std::uint32_t>(bytes, kTableChecksumAt)};
}

bool is_intact(const CsrHeaderBytes& bytes) {
  return crc32c(std::span(bytes).first(kChecksumAt)) == load_at<std::uint32_t>(bytes, kChecksumAt);
}

std::vector<std::byte> encode_table(std::span<const CsrBlock> blocks) {
  std::vector<std::byte> bytes(blocks.size() * kCsrEntryBytes);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::span entry = std::span(bytes).subspan(i * kCsrEntryBytes, kCsrEntryBytes);
    store_at(entry, kOffsetAt, blocks[i].offset);
    store_at(entry, kBytesAt, blocks[i].bytes);
    store_at(entry, kBlockRowsAt, blocks[i].rows);
    store_at(entry, kBlockNonzerosAt, blocks[i].nonzeros);
    store_at(entry, kBlockChecksumAt, blocks[i].checksum);
    store_at(entry, kIsBinaryAt, blocks[i].is_binary);
  }
  return bytes;
}

CsrBlock decode_entry(std::span<const std::byte> entry) {
  return {.offset = load_at<std::uint64_t>(entry, kOffsetAt),
          .bytes = load_at<std::uint64_t>(entry, kBytesAt),
          .rows = load_at<std::uint64_t>(entry, kBlockRowsAt),
          .nonzeros = load_at<std::uint64_t>(entry, kBlockNonzerosAt),
          .checksum = load_at<std::uint32_t>(entry, kBlockChecksumAt),
          .is_binary = load_at<std::uint32_t>(entry, kIsBinaryAt)};
}

}  // namespace tulle::linear
